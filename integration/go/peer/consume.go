package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

func consumerOptions(o options) []consumer.Option {
	all := []consumer.Option{
		consumer.WithNameServer(o.addresses()), consumer.WithGroupName(o.group), consumer.WithCredentials(o.credentials()),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset), consumer.WithConsumerOrder(o.orderly),
	}
	if o.broadcast {
		all = append(all, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	if o.trace != "" {
		all = append(all, consumer.WithTrace(o.traceConfig()))
	}
	if o.namespace != "" {
		all = append(all, consumer.WithNamespace(o.namespace))
	}
	return all
}

func newConsumer(o options) (rocketmq.PushConsumer, error) {
	return rocketmq.NewPushConsumer(consumerOptions(o)...)
}

func (o options) selector() consumer.MessageSelector {
	if o.sql != "" {
		return consumer.MessageSelector{Type: consumer.SQL92, Expression: o.sql}
	}
	return consumer.MessageSelector{Type: consumer.TAG, Expression: o.tags}
}

// A member of a group: prints {"ready": group} when it has joined, then every message that it got.
func push(o options) error {
	c, err := newConsumer(o)
	if err != nil {
		return err
	}
	var failed sync.Map
	failure := consumer.ConsumeRetryLater
	if o.orderly {
		failure = consumer.SuspendCurrentQueueAMoment
	}
	err = c.Subscribe(o.topic, o.selector(),
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			outcome := consumer.ConsumeSuccess
			for _, each := range messages {
				printMessage(each)
				if _, again := failed.LoadOrStore(each.MsgId, true); o.failFirst && !again {
					outcome = failure
				}
			}
			return outcome, nil
		})
	if err != nil {
		return err
	}
	if err = c.Start(); err != nil {
		return err
	}
	print(line{"ready": o.group})
	untilAsked()
	return c.Shutdown()
}

func startPullConsumer(o options) (rocketmq.PullConsumer, error) {
	c, err := rocketmq.NewPullConsumer(consumerOptions(o)...)
	if err != nil {
		return nil, err
	}
	if err = c.Subscribe(o.topic, o.selector()); err != nil {
		return nil, err
	}
	return c, c.Start()
}

// Prints and acknowledges so many messages that a group's pull consumer is given.
func poll(o options) error {
	c, err := startPullConsumer(o)
	if err != nil {
		return err
	}
	for count := 0; count < o.count; {
		polled, err := c.Poll(context.Background(), 5*time.Second)
		if consumer.IsNoNewMsgError(err) {
			continue
		}
		if err != nil {
			return err
		}
		for _, each := range polled.GetMsgList() {
			printMessage(each)
			count++
		}
		c.ACK(context.Background(), polled, consumer.ConsumeSuccess)
	}
	if err = c.PersistOffset(context.Background(), o.topic); err != nil {
		return err
	}
	return c.Shutdown()
}

// Prints all messages of the broker's queue 0, from the beginning.
func pull(o options) error {
	c, err := startPullConsumer(o)
	if err != nil {
		return err
	}
	queue := &primitive.MessageQueue{Topic: o.topic, BrokerName: o.body, QueueId: 0}
	for offset := int64(0); offset < int64(o.count); {
		pulled, err := c.PullFrom(context.Background(), queue, offset, 2)
		if err != nil {
			return err
		}
		if pulled.Status != primitive.PullFound {
			return fmt.Errorf("at %d is nothing: %d", offset, pulled.Status)
		}
		for _, each := range pulled.GetMessageExts() {
			printMessage(each)
		}
		offset = pulled.NextBeginOffset
	}
	return c.Shutdown()
}
