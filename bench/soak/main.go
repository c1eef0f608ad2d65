// Command soak tests a fastadmit binary for a long time, under good load and attacks at
// the same time. The binary runs in a cgroup with the memory limit of the chart, and with
// all plugins except AlwaysDeny. The command fails if the process ends or
// panics, if it answers the good load wrongly, if more than one in 1000 of these requests
// has no answer in time, if a probe of its health takes longer than a kubelet waits, if it
// sends the API server more requests than it promises, or if memory keeps growing.
//
// The good load consists of all recordings of a real kube-apiserver. It is sent as
// kube-apiserver sends it, with a token. The attacks come from other addresses. Most of
// them have no token; large and broken reviews have the token. Others come from the objects
// of a tenant in an API server, and from the backends of webhooks.
//
// Where other programs use the processors, nobody can tell a late answer of fastadmit from a late
// start of its process. There the soak needs priority: nice -n -15, and, where Linux groups processes by session
// (/proc/sys/kernel/sched_autogroup_enabled), echo -15 >/proc/self/autogroup in the shell before.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"sync"
	"syscall"
	"time"

	"github.com/fastadmit/fastadmit/bench"
	"github.com/fastadmit/fastadmit/bench/apiserver"
	"github.com/fastadmit/fastadmit/corpus"
)

// inFlightMax is how many requests an API server has in flight at most: the defaults of
// --max-requests-inflight and --max-mutating-requests-inflight together.
const inFlightMax = 600

// unansweredMax limits requests without an answer in time to one in this many.
const unansweredMax = 1000

// options are the flags.
type options struct {
	binary   string
	duration time.Duration
	rate     float64
	memory   int64
	only     string
	profiles string
}

func main() {
	var o options
	flag.StringVar(&o.binary, "binary", "bin/fastadmit", "the fastadmit to start")
	flag.DurationVar(&o.duration, "duration", time.Hour, "how long the load lasts")
	flag.Float64Var(&o.rate, "rate", 200, "good requests per second, half of them to each endpoint")
	flag.Int64Var(&o.memory, "memory", 512<<20, "memory limit of the process in bytes; the default is that of a pod in the chart")
	flag.StringVar(&o.only, "attacks", "", "regular expression for the names of the attacks to run, to find out which does harm; empty for all")
	flag.StringVar(&o.profiles, "profiles", "", "folder for a heap profile at each new maximum of anonymous memory; empty for none")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := o.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

func (o *options) run(ctx context.Context) error {
	only, err := regexp.Compile(o.only)
	if err != nil {
		return fmt.Errorf("--attacks: %w", err)
	}
	dir, err := os.MkdirTemp("", "fastadmit-soak")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	backend := newBackend()
	defer backend.Close()
	webhook := newWebhook()
	defer webhook.Close()
	api, err := apiserver.Start(withNamespaces(corpus.Cluster), tenants(), []byte(parameterPolicy), webhookConfiguration(webhook))
	if err != nil {
		return err
	}
	defer api.Close()
	fill(api)
	server, err := start(o, dir, backend.URL, api.URL)
	if err != nil {
		return err
	}
	defer server.kill()
	if err := server.awaitReady(ctx); err != nil {
		return err
	}
	mix, err := good()
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
	if o.profiles != "" {
		go server.profile(attacked, o.profiles)
	}
	through := &clusterAttacks{api: api}
	attacks := attack(attacked, server, through, only)
	probes := startProbes(attacked, server, backend.URL+"/healthz")
	wrong := o.sendGood(ctx, server, mix)
	cancel()
	attacks.wait()
	seen := <-watched
	attacks.print()
	return errors.Join(wrong, seen.judge(), probes.judge(), through.judge(), server.settles(ctx, quiet))
}

// sendGood sends the good reviews to both endpoints. The error says which answers were wrong or lost.
func (o *options) sendGood(ctx context.Context, server *server, mix *bench.Mix) error {
	var group sync.WaitGroup
	paths := []string{"/mutate", "/validate"}
	wrong := make([]error, len(paths))
	for i, path := range paths {
		group.Go(func() {
			target := server.target
			target.URL += path
			result, err := bench.Run(ctx, bench.Config{
				Target: target, Mix: mix, PatchSample: 1,
				Load: bench.Load{Rate: o.rate / float64(len(paths)), InFlight: inFlightMax / len(paths), Arrivals: bench.Poisson,
					Duration: o.duration},
			})
			if err == nil {
				err = judge(path, result)
			}
			wrong[i] = err
		})
	}
	group.Wait()
	return errors.Join(wrong...)
}

// good is the load of a cluster's API servers: all recordings.
func good() (*bench.Mix, error) {
	var recordings []*bench.Recording
	for _, version := range []string{"v1", "v1beta1"} {
		bundled, err := bench.Bundled(version)
		if err != nil {
			return nil, err
		}
		recordings = append(recordings, bundled...)
	}
	return bench.NewMix(recordings, nil, 1)
}

// judge prints the result of an endpoint's good load, and returns an error if it is not acceptable.
// Requests without an answer in time are counted separately from wrong answers, because a busy
// machine causes some.
func judge(path string, r *bench.Result) error {
	var unanswered int64
	for _, fault := range r.Faults {
		fmt.Printf("  %s: %s: %d, the first: %s\n", path, fault.Fault, fault.Count, fault.Example)
		switch fault.Fault {
		case bench.FaultTimeout, bench.FaultConnect, bench.FaultBroken:
			unanswered += fault.Count
		}
	}
	wrong := r.Failed - unanswered
	fmt.Printf("good load of %s: %d requests, %d with a wrong answer, %d without one in time, %d tried again after 429, p50 %s, p99 "+
		"%s, max %s\n", path, r.Requests,
		wrong, unanswered, r.Retries, bench.Time.Format(r.Latency.P50), bench.Time.Format(r.Latency.P99), bench.Time.Format(r.Latency.Max))
	if r.Requests == 0 || wrong > 0 {
		return fmt.Errorf("%s: got %d wrong answers to %d requests, want none", path, wrong, r.Requests)
	}
	if unanswered > r.Requests/unansweredMax {
		return fmt.Errorf("%s: got %d of %d requests without an answer in time, want at most one of %d", path, unanswered, r.Requests,
			unansweredMax)
	}
	return nil
}
