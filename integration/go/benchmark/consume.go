package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

func newConsumer(o options, list int) (rocketmq.PushConsumer, error) {
	return rocketmq.NewPushConsumer(
		consumer.WithNameServer(strings.Split(o.nameServers, ";")),
		consumer.WithGroupName(o.group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumeMessageBatchMaxSize(list),
	)
}

// Subscribes, and has handle called with the number of messages of each call.
func subscribe(c rocketmq.PushConsumer, topic string, handle func(int)) error {
	return c.Subscribe(topic, consumer.MessageSelector{},
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			handle(len(messages))
			return consumer.ConsumeSuccess, nil
		})
}

// Consumes a topic's backlog, with a handler that only counts.
func consume(o options) error {
	c, err := newConsumer(o, o.list)
	if err != nil {
		return err
	}
	first, last := int64(max(1, o.warmUp)), int64(o.warmUp+o.count)
	var consumed atomic.Int64
	warm, done := make(chan *stopwatch, 1), make(chan *stopwatch, 1)
	err = subscribe(c, o.topic, func(count int) {
		now := consumed.Add(int64(count))
		before := now - int64(count)
		if before < first && now >= first {
			warm <- startWatch()
		}
		if before < last && now >= last {
			watch := <-warm
			watch.stop()
			done <- watch
		}
	})
	if err != nil {
		return err
	}
	if err = c.Start(); err != nil {
		return err
	}
	watch := <-done
	if err = c.Shutdown(); err != nil {
		return err
	}
	return report(watch, nil)
}

// Sends a message when the one before has been handled; measures from there to the handler.
func latency(o options) error {
	c, err := newConsumer(o, 1)
	if err != nil {
		return err
	}
	arrived := make(chan time.Time, 1)
	if err = subscribe(c, o.topic, func(int) { arrived <- time.Now() }); err != nil {
		return err
	}
	if err = c.Start(); err != nil {
		return err
	}
	p, err := startProducer(o)
	if err != nil {
		return err
	}
	var watch *stopwatch
	latencies := make([]time.Duration, 0, o.count)
	text := body(o)
	for i := 0; i < o.warmUp+o.count; i++ {
		if i == o.warmUp {
			watch = startWatch()
		}
		started := time.Now()
		if _, err = p.SendSync(context.Background(), message(o, text)); err != nil {
			return err
		}
		handled := <-arrived
		if i >= o.warmUp {
			latencies = append(latencies, handled.Sub(started))
		}
	}
	watch.stop()
	return report(watch, latencies)
}

// Consumes from many topics until a message of each queue has come.
func memory(o options) error {
	c, err := newConsumer(o, 1)
	if err != nil {
		return err
	}
	var consumed atomic.Int64
	done := make(chan struct{})
	for i := 0; i < o.topics; i++ {
		err = subscribe(c, fmt.Sprintf("%s-%d", o.topic, i), func(count int) {
			if consumed.Add(int64(count)) == int64(o.count) {
				close(done)
			}
		})
		if err != nil {
			return err
		}
	}
	watch := startWatch()
	if err = c.Start(); err != nil {
		return err
	}
	<-done
	watch.stop()
	return report(watch, nil)
}
