package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// A benchmark waits rather than fails, and so do its other clients.
const sendTimeout = 30 * time.Second

// Pipelined, the latency of one of so many messages is taken, as it is by the other programs.
const latencyEvery = 10

// Sends so many messages and returns how long each took; in mode batches, each batch.
type sends func(rocketmq.Producer, options, int) ([]time.Duration, error)

func produce(o options) error {
	send, known := map[string]sends{
		"awaited": awaited, "callers": callers, "pipelined": pipelined, "batches": batches,
	}[o.mode]
	if !known {
		return fmt.Errorf("no mode %q", o.mode)
	}
	p, err := startProducer(o)
	if err != nil {
		return err
	}
	if _, err = send(p, o, o.warmUp); err != nil {
		return err
	}
	watch := startWatch()
	latencies, err := send(p, o, o.count)
	watch.stop()
	if err != nil {
		return err
	}
	if err = p.Shutdown(); err != nil {
		return err
	}
	return report(watch, latencies)
}

func startProducer(o options) (rocketmq.Producer, error) {
	p, err := rocketmq.NewProducer(
		producer.WithNameServer(strings.Split(o.nameServers, ";")),
		producer.WithGroupName(o.group),
		producer.WithSendMsgTimeout(sendTimeout),
	)
	if err != nil {
		return nil, err
	}
	return p, p.Start()
}

// A message of its own for each send: the client writes properties into the one it is given.
func message(o options, body []byte) *primitive.Message {
	return primitive.NewMessage(o.topic, body)
}

func body(o options) []byte {
	return bytes.Repeat([]byte("x"), o.size)
}

func awaited(p rocketmq.Producer, o options, count int) ([]time.Duration, error) {
	latencies := make([]time.Duration, 0, count)
	text := body(o)
	for i := 0; i < count; i++ {
		started := time.Now()
		if _, err := p.SendSync(context.Background(), message(o, text)); err != nil {
			return nil, err
		}
		latencies = append(latencies, time.Since(started))
	}
	return latencies, nil
}

func callers(p rocketmq.Producer, o options, count int) ([]time.Duration, error) {
	var all []time.Duration
	var failure error
	var lock sync.Mutex
	var group sync.WaitGroup
	for i := 0; i < o.callers; i++ {
		share := (count + i) / o.callers
		group.Add(1)
		go func() {
			defer group.Done()
			latencies, err := awaited(p, o, share)
			lock.Lock()
			defer lock.Unlock()
			all = append(all, latencies...)
			if err != nil {
				failure = err
			}
		}()
	}
	group.Wait()
	return all, failure
}

func pipelined(p rocketmq.Producer, o options, count int) ([]time.Duration, error) {
	latencies := make([]time.Duration, (count+latencyEvery-1)/latencyEvery)
	failures := make(chan error, 1)
	places := make(chan struct{}, o.inFlight)
	text := body(o)
	fail := func(err error) {
		select {
		case failures <- err:
		default: // one is enough
		}
	}
	for i := 0; i < count; i++ {
		places <- struct{}{}
		number, started := i, time.Time{}
		if number%latencyEvery == 0 {
			started = time.Now()
		}
		err := p.SendAsync(context.Background(), func(_ context.Context, _ *primitive.SendResult, err error) {
			if number%latencyEvery == 0 {
				latencies[number/latencyEvery] = time.Since(started)
			}
			if err != nil {
				fail(err)
			}
			<-places
		}, message(o, text))
		if err != nil {
			return nil, err
		}
	}
	for i := 0; i < o.inFlight; i++ {
		places <- struct{}{}
	}
	select {
	case err := <-failures:
		return nil, err
	default:
		return latencies, nil
	}
}

// Unlike Java's, this client gives the messages of a batch no ids of their own, and so has less to do.
func batches(p rocketmq.Producer, o options, count int) ([]time.Duration, error) {
	var latencies []time.Duration
	text := body(o)
	for sent := 0; sent < count; sent += o.batch {
		started := time.Now()
		batch := make([]*primitive.Message, 0, o.batch)
		for i := sent; i < min(sent+o.batch, count); i++ {
			batch = append(batch, message(o, text))
		}
		if _, err := p.SendSync(context.Background(), batch...); err != nil {
			return nil, err
		}
		latencies = append(latencies, time.Since(started))
	}
	return latencies, nil
}
