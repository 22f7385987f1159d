package main

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const (
	// Trace records are written a few milliseconds later; closing a producer does not wait for them.
	traceWait = 300 * time.Millisecond
	// Brokers know where to send a reply by the requester's heartbeat, which comes a second after it has started.
	heartbeatWait = 1500 * time.Millisecond
)

func producerOptions(o options) []producer.Option {
	all := []producer.Option{
		producer.WithNameServer(o.addresses()), producer.WithGroupName(o.group), producer.WithCredentials(o.credentials()),
		producer.WithRetry(0),
	}
	if o.trace != "" {
		all = append(all, producer.WithTrace(o.traceConfig()))
	}
	if o.namespace != "" {
		all = append(all, producer.WithNamespace(o.namespace))
	}
	return all
}

func startProducer(o options, more ...producer.Option) (rocketmq.Producer, error) {
	p, err := rocketmq.NewProducer(append(producerOptions(o), more...)...)
	if err != nil {
		return nil, err
	}
	return p, p.Start()
}

func printResult(kind string, result *primitive.SendResult) {
	print(line{
		"kind": kind, "msgId": result.MsgID, "offsetMsgId": result.OffsetMsgID, "queueId": result.MessageQueue.QueueId,
		"queueOffset": result.QueueOffset, "status": int(result.Status),
	})
}

// Sends a message of each kind, whose body is the name of the kind, and prints the results. With a body, that only.
func send(o options) error {
	p, err := startProducer(o, producer.WithQueueSelector(producer.NewHashQueueSelector()))
	if err != nil {
		return err
	}
	message := func(kind string) *primitive.Message {
		return primitive.NewMessage(o.topic, []byte(kind))
	}
	wait := context.Background()
	if o.body != "" {
		for i := 0; i < o.count; i++ {
			result, err := p.SendSync(wait, message(fmt.Sprint(o.body, i)).WithShardingKey("one queue"))
			if err != nil {
				return err
			}
			printResult(o.body, result)
		}
		if o.trace != "" {
			time.Sleep(traceWait)
		}
		return p.Shutdown()
	}
	plain := message("plain").WithTag("TagA").WithKeys([]string{"key-1", "key-2"})
	plain.WithProperty("colour", "grün")
	for kind, each := range map[string]*primitive.Message{
		"plain":      plain,
		"sharded":    message("sharded").WithShardingKey("order-7"),
		"delayed":    message("delayed").WithDelayTimeLevel(1),
		"compressed": primitive.NewMessage(o.topic, bytes.Repeat([]byte("compressed"), 1000)),
	} {
		result, err := p.SendSync(wait, each)
		if err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		printResult(kind, result)
	}
	failed := make(chan error, 1)
	err = p.SendAsync(wait, func(_ context.Context, result *primitive.SendResult, err error) {
		if err == nil {
			printResult("async", result)
		}
		failed <- err
	}, message("async"))
	if err != nil {
		return err
	}
	if err = <-failed; err != nil {
		return err
	}
	if err = p.SendOneWay(wait, message("oneway")); err != nil {
		return err
	}
	result, err := p.SendSync(wait, message("batch-0").WithTag("TagB"), message("batch-1").WithKeys([]string{"k"}))
	if err != nil {
		return err
	}
	printResult("batch", result)
	return p.Shutdown()
}

var states = map[string]primitive.LocalTransactionState{
	"commit": primitive.CommitMessageState, "rollback": primitive.RollbackMessageState, "unknown": primitive.UnknowState,
}

type listener struct {
	outcome, check primitive.LocalTransactionState
}

func (l listener) ExecuteLocalTransaction(*primitive.Message) primitive.LocalTransactionState {
	return l.outcome
}

func (l listener) CheckLocalTransaction(m *primitive.MessageExt) primitive.LocalTransactionState {
	print(line{
		"asked": m.GetProperty(primitive.PropertyUniqueClientMessageIdKeyIndex), "topic": m.Topic, "body": string(m.Body),
	})
	return l.check
}

// Sends a message in a transaction, and answers the brokers' checks of it until it is stopped.
func transact(o options) error {
	p, err := rocketmq.NewTransactionProducer(listener{states[o.outcome], states[o.check]}, producerOptions(o)...)
	if err != nil {
		return err
	}
	if err = p.Start(); err != nil {
		return err
	}
	message := primitive.NewMessage(o.topic, []byte(o.body)).WithTag("TagT")
	result, err := p.SendMessageInTransaction(context.Background(), message)
	if err != nil {
		return err
	}
	print(line{"msgId": result.MsgID, "queueId": result.MessageQueue.QueueId, "transactionId": result.TransactionID})
	untilAsked()
	return p.Shutdown()
}

// Asks, and prints the replies.
func request(o options) error {
	p, err := startProducer(o)
	if err != nil {
		return err
	}
	for i := 0; i < o.count; i++ {
		message := primitive.NewMessage(o.topic, []byte(fmt.Sprint(o.body, i)))
		answer, err := p.Request(context.Background(), 10*time.Second, message)
		if err != nil {
			return err
		}
		print(line{"reply": string(answer.Body), "properties": answer.GetProperties()})
	}
	untilAsked() // the broker must learn that the last reply arrived before it reports the replier
	return p.Shutdown()
}

// Replies to requests with their bodies in capitals.
func reply(o options) error {
	p, err := startProducer(options{nameServers: o.nameServers, group: o.group + "-replies"})
	if err != nil {
		return err
	}
	c, err := newConsumer(o)
	if err != nil {
		return err
	}
	var first sync.Once
	err = c.Subscribe(o.topic, consumer.MessageSelector{},
		func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			first.Do(func() { time.Sleep(heartbeatWait) })
			for _, each := range messages {
				// It takes the body that it is given for properties, and leaves the reply without one.
				answer, err := consumer.CreateReplyMessage(each, nil)
				if err != nil {
					return consumer.ConsumeRetryLater, err
				}
				answer.Body = bytes.ToUpper(each.Body)
				result, err := p.SendSync(ctx, answer)
				if err != nil {
					return consumer.ConsumeRetryLater, err
				}
				print(line{"replied": string(each.Body), "status": int(result.Status)})
			}
			return consumer.ConsumeSuccess, nil
		})
	if err != nil {
		return err
	}
	if err = c.Start(); err != nil {
		return err
	}
	print(line{"ready": o.group})
	untilAsked()
	if err = c.Shutdown(); err != nil {
		return err
	}
	return p.Shutdown()
}
