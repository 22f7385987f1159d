// The Go client as a peer of tests: does one kind of work, and prints a JSON object a line.
//
// It ends when its standard input closes. By SIGTERM those that go on say goodbye first.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

// Command line options, named as in the programs of the Java peers.
type options struct {
	nameServers string
	mode        string
	topic       string
	group       string
	body        string
	tags        string
	sql         string
	outcome     string // of a transaction
	check       string // the result of its check
	trace       string // the topic for trace records
	accessKey   string
	secretKey   string
	namespace   string
	count       int
	orderly     bool
	failFirst   bool // fails the first delivery of each message
	broadcast   bool
}

func parse() options {
	var o options
	flag.StringVar(&o.nameServers, "namesrv", "", "addresses with ; between")
	flag.StringVar(&o.mode, "mode", "", "send, transact, request, reply, push, poll or pull")
	flag.StringVar(&o.topic, "topic", "", "")
	flag.StringVar(&o.group, "group", "go-peer", "")
	flag.StringVar(&o.body, "body", "", "")
	flag.StringVar(&o.tags, "tags", "*", "")
	flag.StringVar(&o.sql, "sql", "", "")
	flag.StringVar(&o.outcome, "outcome", "commit", "commit, rollback or unknown")
	flag.StringVar(&o.check, "check", "unknown", "commit, rollback or unknown")
	flag.StringVar(&o.trace, "trace", "", "")
	flag.StringVar(&o.accessKey, "access-key", "", "")
	flag.StringVar(&o.secretKey, "secret-key", "", "")
	flag.StringVar(&o.namespace, "namespace", "", "")
	flag.IntVar(&o.count, "count", 1, "")
	flag.BoolVar(&o.orderly, "orderly", false, "")
	flag.BoolVar(&o.failFirst, "fail-first", false, "")
	flag.BoolVar(&o.broadcast, "broadcast", false, "")
	flag.Parse()
	return o
}

func (o options) addresses() []string {
	return strings.Split(o.nameServers, ";")
}

func (o options) credentials() primitive.Credentials {
	return primitive.Credentials{AccessKey: o.accessKey, SecretKey: o.secretKey}
}

func (o options) traceConfig() *primitive.TraceConfig {
	return &primitive.TraceConfig{
		TraceTopic: o.trace, GroupName: o.group, Access: primitive.Local,
		Resolver: primitive.NewPassthroughResolver(o.addresses()), Credentials: o.credentials(),
	}
}

func main() {
	rlog.SetLogLevel("error")
	o := parse()
	modes := map[string]func(options) error{
		"send": send, "transact": transact, "request": request, "reply": reply,
		"push": push, "poll": poll, "pull": pull,
	}
	do, known := modes[o.mode]
	if !known {
		fmt.Fprintf(os.Stderr, "no mode %q\n", o.mode)
		os.Exit(2)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	if err := do(o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Waits for SIGTERM.
func untilAsked() {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	<-asked
}

type line map[string]any

var printing sync.Mutex

func print(what line) {
	printing.Lock()
	defer printing.Unlock()
	if err := json.NewEncoder(os.Stdout).Encode(what); err != nil {
		panic(err)
	}
}

func printMessage(m *primitive.MessageExt) {
	print(line{
		"topic": m.Topic, "body": m.Body, "tags": m.GetTags(), "keys": m.GetKeys(), "properties": m.GetProperties(),
		"msgId": m.MsgId, "offsetMsgId": m.OffsetMsgId, "queueId": m.Queue.QueueId, "queueOffset": m.QueueOffset,
		"reconsumeTimes": m.ReconsumeTimes, "transactionId": m.TransactionId,
	})
}
