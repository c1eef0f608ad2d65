// Command soak runs a fastadmit binary for a long time in a control group with
// the chart's memory limit, with all plugins that do not deny everything, under
// good load and attacks at once, and fails when the process ends or panics, when
// an answer to the good load is wrong or missing, or when memory keeps growing.
//
// The good load is every recording of a real kube-apiserver, sent as
// kube-apiserver sends it, with a token. The attacks come from other addresses:
// most of them without the token, large reviews and broken ones with it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/fastadmit/fastadmit/bench"
)

// options are the flags.
type options struct {
	binary   string
	duration time.Duration
	rate     float64
	memory   int64
}

func main() {
	var o options
	flag.StringVar(&o.binary, "binary", "bin/fastadmit", "the fastadmit to start")
	flag.DurationVar(&o.duration, "duration", time.Hour, "how long the load lasts")
	flag.Float64Var(&o.rate, "rate", 100, "good requests per second")
	flag.Int64Var(&o.memory, "memory", 512<<20, "memory limit of the process in bytes; the default is that of a pod in the chart")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := o.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

func (o *options) run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "fastadmit-soak")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	server, err := start(o, dir)
	if err != nil {
		return err
	}
	defer server.kill()
	config, err := o.good(server)
	if err != nil {
		return err
	}
	quiet, err := server.look()
	if err != nil {
		return err
	}
	fmt.Printf("before: %s\n", quiet)

	attacked, cancel := context.WithCancel(ctx)
	defer cancel()
	watched := make(chan *watch, 1)
	go func() { watched <- server.watch(attacked, o.duration) }()
	attacks := attack(attacked, server)
	result, err := bench.Run(ctx, config)
	cancel()
	if err != nil {
		return err
	}
	attacks.wait()
	seen := <-watched
	attacks.print()
	return errors.Join(judge(result), seen.judge(), server.settles(quiet))
}

// good is the load of a cluster's API servers: all recordings.
func (o *options) good(server *server) (bench.Config, error) {
	var recordings []*bench.Recording
	for _, version := range []string{"v1", "v1beta1"} {
		bundled, err := bench.Bundled(version)
		if err != nil {
			return bench.Config{}, err
		}
		recordings = append(recordings, bundled...)
	}
	mix, err := bench.NewMix(recordings, nil, 1)
	return bench.Config{
		Target:      server.target,
		Mix:         mix,
		PatchSample: 1,
		Load:        bench.Load{Rate: o.rate, Arrivals: bench.Poisson, Duration: o.duration},
	}, err
}

// judge prints what became of the good load, and says what is wrong with it.
func judge(r *bench.Result) error {
	fmt.Printf("good load: %d requests, %d without a right answer, %d tried again after 429, p50 %s, p99 %s, max %s\n",
		r.Requests, r.Failed, r.Retries, bench.Time.Format(r.Latency.P50), bench.Time.Format(r.Latency.P99), bench.Time.Format(r.Latency.Max))
	for _, fault := range r.Faults {
		fmt.Printf("  %s: %d, the first: %s\n", fault.Fault, fault.Count, fault.Example)
	}
	if r.Requests == 0 || r.Failed > 0 {
		return fmt.Errorf("got %d of %d requests with a wrong answer or none, want none", r.Failed, r.Requests)
	}
	return nil
}
