#!/bin/sh
# Operate a cluster without automatic topics, with access control and TLS: set up, use, watch, break, repair.
#
#     NAMESRV=host:port CA=ca.pem CERT=client.pem \
#     OPERATOR=access-key OPERATOR_SECRET=file SHOP=access-key SHOP_SECRET=file \
#         sh examples/operating.sh
#
# OPERATOR is an administrator. SHOP is an application's user. The script creates it on 5.x brokers. For 4.x,
# plain_acl.yml must define it with PUB|SUB for topic Orders and SUB for group billing. Keep the secret files
# private, and the configuration that the script writes to ROCKETMQ_CONFIG, which contains the secrets.
set -eu

say() { printf '\n## %s\n' "$*"; }

# Run a command that must fail.
refused() {
    if "$@"; then
        echo "this should have failed: $*" >&2
        exit 1
    fi
}

# Run a command until it succeeds, because brokers register changes with name servers after a delay.
eventually() {
    tries=60
    until "$@"; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ]
        sleep 1
    done
}

has() { grep -q -e "$1"; }
lag_is() { rocketmq-py check lag billing | has " lag $1, "; }
dead_letters_have() { rocketmq-py dlq list billing --json | has "$1"; }

say "Name the cluster: one context for the operator, one for the application"
rocketmq-py config set operator "address=$NAMESRV" "tls_ca_file=$CA" "tls_certificate_file=$CERT" \
    "access_key=$OPERATOR" "secret_key=@$OPERATOR_SECRET"
rocketmq-py config set shop "address=$NAMESRV" "tls_ca_file=$CA" "tls_certificate_file=$CERT" \
    "access_key=$SHOP" "secret_key=@$SHOP_SECRET"
rocketmq-py config use operator
rocketmq-py config list

say "Set up: a topic, a group, and permissions to use them"
eventually rocketmq-py broker list
refused rocketmq-py send -t Orders "no topic is there yet"
rocketmq-py topic create Orders --queues 4
rocketmq-py group create billing --max-reconsume-times 1
if rocketmq-py broker list --json | has '"version": "5'; then
    rocketmq-py acl user create "$SHOP" --password "@$SHOP_SECRET"
    rocketmq-py acl allow "$SHOP" Topic:Orders Pub Sub Get
    rocketmq-py acl allow "$SHOP" Group:billing Sub
    rocketmq-py acl list --user "$SHOP"
fi
eventually rocketmq-py topic describe Orders

say "Use it"
seq 1 100 | rocketmq-py send -C shop -t Orders --template -k 'order-{n}'
rocketmq-py tail -C shop -t Orders -G billing -o earliest -c 100 | sort -n | tail -1 | has 100
eventually lag_is 0
refused rocketmq-py send -C shop -t Payments "this topic does not exist"

say "Watch it"
seq 101 140 | rocketmq-py send -C shop -t Orders
eventually lag_is 40
rocketmq-py group list
rocketmq-py check lag billing --warn 100 --critical 1000
refused rocketmq-py check lag billing --warn 10 --critical 1000
rocketmq-py top --once --interval 1
eventually rocketmq-py message find Orders order-7
rocketmq-py tail -C shop -t Orders -G billing -c 40 -x 'cat > /dev/null'
eventually lag_is 0

say "Fault: the topic is read-only. Repair: its permission"
rocketmq-py topic alter Orders --permission R
eventually refused rocketmq-py send -C shop -t Orders "read only"
rocketmq-py topic alter Orders --permission RW
eventually rocketmq-py send -C shop -t Orders "written again"
rocketmq-py tail -C shop -t Orders -G billing -c 1

if rocketmq-py broker list --json | has '"version": "5'; then
    say "Fault: the application is denied access. Repair: its permissions"
    rocketmq-py acl deny "$SHOP" Topic:Orders Pub
    refused rocketmq-py send -C shop -t Orders "denied"
    rocketmq-py acl delete "$SHOP" Topic:Orders --yes
    rocketmq-py acl allow "$SHOP" Topic:Orders Pub Sub Get
    rocketmq-py send -C shop -t Orders "allowed again"
    rocketmq-py tail -C shop -t Orders -G billing -c 1
fi

say "Fault: a program fails to handle a message. Repair: its dead letter is sent again"
rocketmq-py tail -C shop -t Orders -G billing -x 'grep -q -v broken' &
member=$!
rocketmq-py send -C shop -t Orders "broken" -k order-13
eventually dead_letters_have order-13
eventually lag_is 0 # the member must learn first that its last retry became a dead letter
kill "$member"
wait "$member" || true
rocketmq-py dlq list billing
rocketmq-py dlq resend billing --all --yes
rocketmq-py tail -C shop -t Orders -G billing -c 1 | has broken

say "Fault: a group was reset to a wrong offset. Repair: reset it again"
eventually lag_is 0
rocketmq-py group reset billing --topic Orders --to earliest --yes
refused lag_is 0
refused rocketmq-py check lag billing --critical 100
rocketmq-py group reset billing --topic Orders --to latest --dry-run
rocketmq-py group reset billing --topic Orders --to latest --yes
eventually lag_is 0

say "Clean up"
refused rocketmq-py topic delete Orders </dev/null # without --yes and without a terminal
rocketmq-py topic delete Orders --yes
rocketmq-py group delete billing --dead-letters --yes
refused rocketmq-py topic describe Orders
say "Done"
