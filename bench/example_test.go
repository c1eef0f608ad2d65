package bench_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/fastadmit/fastadmit/bench"
)

// This runs the recordings that the package contains.
func ExampleRun() {
	recordings, err := bench.Bundled("v1")
	if err != nil {
		panic(err)
	}
	mix, err := bench.NewMix(recordings, map[string]float64{"pods:create": 8, "configmaps": 1}, 1)
	if err != nil {
		panic(err)
	}
	result, err := bench.Run(context.Background(), bench.Config{
		Target: bench.Target{URL: "https://webhook.example:8443/mutate"},
		Load:   bench.Load{Rate: 1000, Arrivals: bench.Poisson, WarmUp: time.Second, Duration: 10 * time.Second},
		Mix:    mix,
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(result.Latency.P99, result.Failed)
}

// This measures several webhooks in turns and writes a page about them.
func ExampleInterleave() {
	review, err := bench.Synthetic("UPDATE", 1<<20)
	if err != nil {
		panic(err)
	}
	mix, err := bench.NewMix([]*bench.Recording{review}, nil, 1)
	if err != nil {
		panic(err)
	}
	load := bench.Load{InFlight: 8, WarmUp: time.Second, Duration: 5 * time.Second}
	series, err := bench.Interleave(context.Background(), 5,
		bench.Config{Target: bench.Target{Name: "ours", URL: "https://localhost:8443/mutate", PID: 4711}, Load: load, Mix: mix},
		bench.Config{Target: bench.Target{Name: "theirs", URL: "https://localhost:9443/mutate", PID: 4712}, Load: load, Mix: mix},
	)
	if err != nil {
		panic(err)
	}
	if err := bench.NewReport(series).WriteHTML(os.Stdout); err != nil {
		panic(err)
	}
}

// This finds the highest rate at which 99 of 100 answers arrive within 5 ms.
func ExampleFindKnee() {
	recordings, err := bench.Bundled("v1")
	if err != nil {
		panic(err)
	}
	mix, err := bench.NewMix(recordings, nil, 1)
	if err != nil {
		panic(err)
	}
	sweep, err := bench.FindKnee(context.Background(), bench.Config{
		Target: bench.Target{URL: "https://webhook.example:8443/mutate"},
		Load:   bench.Load{WarmUp: time.Second, Duration: 5 * time.Second},
		Mix:    mix,
	}, 5*time.Millisecond)
	if err != nil {
		panic(err)
	}
	fmt.Println(sweep.Knee)
}
