package main

import (
	"encoding/json"
	"os"

	"github.com/fastadmit/fastadmit/bench"
	"github.com/fastadmit/fastadmit/bench/growth"
)

// Results are the measurements of a run. They are kept in results.json. The tables and pictures in
// documents are made from it.
type Results struct {
	Command string        `json:"command"`
	Date    string        `json:"date"`
	Commit  string        `json:"commit"`
	Machine bench.Machine `json:"machine"`
	CPUs    string        `json:"processors"` // which processors the generator and the servers use
	Plan    plan          `json:"plan"`

	Scenarios []ScenarioResult `json:"scenarios"`
	Bursts    []BurstRow       `json:"bursts"`
	Worst     *Worst           `json:"worst,omitempty"`

	growth growth.Results // in a file of its own, in which make compare-cluster writes too
}

// isEmpty reports whether nothing was measured but growing numbers.
func (r *Results) isEmpty() bool {
	return len(r.Scenarios) == 0 && len(r.Bursts) == 0 && r.Worst == nil
}

// ScenarioResult is the measurement of a scenario.
type ScenarioResult struct {
	Name         string `json:"name"`
	About        string `json:"about"`
	RequestBytes int    `json:"requestBytes"`
	// Rows are the results of closed loops, one for each contender.
	Rows []Row `json:"contenders"`
	// Slowest is the contender with the fewest requests per second. Knee is its highest rate at
	// which the p99 latency is below the bound.
	Slowest string      `json:"slowest"`
	Knee    float64     `json:"kneePerSecond"`
	Rates   []RateGroup `json:"rates"`
	// LowRates are rates that leave the server idle most of the time. Scenarios with large reviews
	// have none.
	LowRates []LowRate `json:"lowRates,omitempty"`
}

// LowRate is the cost of a request at a rate.
type LowRate struct {
	Rate float64  `json:"requestsPerSecond"`
	Rows []LowRow `json:"contenders"`
}

// LowRow is a contender at a low rate: its processor time per request in microseconds, and the
// ratio to the floor's in each round.
type LowRow struct {
	Name    string       `json:"name"`
	CPU     bench.Spread `json:"cpu"`
	ToFloor bench.Spread `json:"cpuToFloor"`
}

// Row is a contender in closed loops. Times are in microseconds; allocations are per request.
type Row struct {
	Name        string       `json:"name"`
	CPU         bench.Spread `json:"cpu"`
	Rate        bench.Spread `json:"requestsPerSecond"`
	Busy        bench.Spread `json:"busy"` // how much of its processor was busy
	Allocations bench.Spread `json:"allocations"`
	Allocated   bench.Spread `json:"allocatedBytes"`
	Resident    bench.Spread `json:"residentBytes"`
	// ToFloor and ToOurs are ratios of processor time in each round.
	ToFloor bench.Spread `json:"cpuToFloor"`
	ToOurs  bench.Spread `json:"cpuToFastadmit"`
}

// RateGroup is the measurement at a rate.
type RateGroup struct {
	Share float64      `json:"shareOfKnee"`
	Rate  float64      `json:"requestsPerSecond"`
	Rows  []LatencyRow `json:"contenders"`
}

// LatencyRow is a contender in open loops: the number of requests in all rounds, and percentiles of
// their latencies in microseconds.
type LatencyRow struct {
	Name     string  `json:"name"`
	Requests int64   `json:"requests"`
	P50      float64 `json:"p50"`
	P99      float64 `json:"p99"`
	P999     float64 `json:"p999"`
}

// BurstRow is a contender in bursts: processor time per request, connections opened per request,
// and percentiles of the latencies of all rounds. Times are in microseconds.
type BurstRow struct {
	Name       string       `json:"name"`
	CPU        bench.Spread `json:"cpu"`
	Handshakes float64      `json:"handshakesPerRequest"`
	P50        float64      `json:"p50"`
	P99        float64      `json:"p99"`
}

func readResults(file string) (*Results, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := new(Results)
	if err := json.Unmarshal(content, r); err != nil {
		return nil, err
	}
	known, err := growth.Read(growthFile(file))
	if err == nil {
		r.growth = *known
	}
	return r, err
}

// write writes what was measured. Of growing numbers, those that others have measured stay.
func (r *Results) write(file string) error {
	if r.growth.Reviews != nil {
		known, err := growth.Read(growthFile(file))
		if err != nil {
			return err
		}
		known.Reviews = r.growth.Reviews
		if err := known.Write(growthFile(file)); err != nil {
			return err
		}
	}
	if r.isEmpty() {
		return nil
	}
	content, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(content, '\n'), 0o644)
}
