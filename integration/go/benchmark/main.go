// The Go client, measured: does one kind of work and prints one line of JSON, as the Java program Benchmark does.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

// Command line options, named as in the other clients' programs.
type options struct {
	nameServers string
	topic       string // in mode memory, the prefix of the topics' names
	mode        string
	group       string
	count       int // messages that are measured
	warmUp      int // messages before them
	size        int // bytes of a body
	callers     int
	inFlight    int
	batch       int
	list        int // messages that a handler takes at once
	topics      int
}

func parse() options {
	var o options
	flag.StringVar(&o.nameServers, "namesrv", "", "addresses with ; between")
	flag.StringVar(&o.topic, "topic", "", "")
	flag.StringVar(&o.mode, "mode", "", "awaited, callers, pipelined, batches, consume, latency or memory")
	flag.StringVar(&o.group, "group", "", "")
	flag.IntVar(&o.count, "count", 0, "")
	flag.IntVar(&o.warmUp, "warm-up", 0, "")
	flag.IntVar(&o.size, "size", 128, "")
	flag.IntVar(&o.callers, "callers", 16, "")
	flag.IntVar(&o.inFlight, "in-flight", 256, "")
	flag.IntVar(&o.batch, "batch", 100, "")
	flag.IntVar(&o.list, "list", 1, "")
	flag.IntVar(&o.topics, "topics", 1, "")
	flag.Parse()
	return o
}

func main() {
	rlog.SetLogLevel("error")
	o := parse()
	var err error
	switch o.mode {
	case "consume":
		err = consume(o)
	case "latency":
		err = latency(o)
	case "memory":
		err = memory(o)
	default:
		err = produce(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Wall time, and the CPU time of this process between start and stop.
type stopwatch struct {
	started    time.Time
	cpuStarted time.Duration
	took, cpu  time.Duration
}

func startWatch() *stopwatch {
	return &stopwatch{started: time.Now(), cpuStarted: processorTime()}
}

func (w *stopwatch) stop() {
	w.took = time.Since(w.started)
	w.cpu = processorTime() - w.cpuStarted
}

func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// Prints the measurements, without latencies if there are none.
func report(watch *stopwatch, latencies []time.Duration) error {
	line := map[string]any{
		"seconds": watch.took.Seconds(), "cpu_seconds": watch.cpu.Seconds(),
		"p50_us": nil, "p99_us": nil, "peak_bytes": peakBytes(),
	}
	if len(latencies) > 0 {
		sort.Slice(latencies, func(i, j int) bool { return latencies[i] < latencies[j] })
		line["p50_us"] = float64(latencies[len(latencies)*50/100].Nanoseconds()) / 1e3
		line["p99_us"] = float64(latencies[len(latencies)*99/100].Nanoseconds()) / 1e3
	}
	return json.NewEncoder(os.Stdout).Encode(line)
}

// The most memory that this process had at a time, or nil where there is no /proc to tell it.
func peakBytes() any {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return nil
	}
	for _, line := range strings.Split(string(status), "\n") {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmHWM:" {
			if kibibytes, err := strconv.Atoi(fields[1]); err == nil {
				return kibibytes * 1024
			}
		}
	}
	return nil
}
