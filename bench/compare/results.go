package main

import (
	"encoding/json"
	"os"

	"github.com/fastadmit/fastadmit/bench"
)

// Results are what a run measured. They are kept in results.json, from which
// the tables and pictures in documents are made.
type Results struct {
	Command string        `json:"command"`
	Date    string        `json:"date"`
	Commit  string        `json:"commit"`
	Machine bench.Machine `json:"machine"`
	CPUs    string        `json:"processors"` // who has which
	Plan    plan          `json:"plan"`

	Works  []WorkResult `json:"works"`
	Bursts []BurstRow   `json:"bursts"`
	Worst  *Worst       `json:"worst,omitempty"`
}

// WorkResult is what was measured of a work.
type WorkResult struct {
	Name         string `json:"name"`
	About        string `json:"about"`
	RequestBytes int    `json:"requestBytes"`
	// Rows are of closed loops, one for each contender.
	Rows []Row `json:"contenders"`
	// Slowest is the contender with the least requests per second, and Knee its
	// highest rate with a p99 latency under the bound.
	Slowest string      `json:"slowest"`
	Knee    float64     `json:"kneePerSecond"`
	Rates   []RateGroup `json:"rates"`
	// LowRates are rates that leave the server idle most of the time. Works with
	// large reviews have none.
	LowRates []LowRate `json:"lowRates,omitempty"`
}

// LowRate is what a request costs at a rate.
type LowRate struct {
	Rate float64  `json:"requestsPerSecond"`
	Rows []LowRow `json:"contenders"`
}

// LowRow is a contender at a low rate: processor time per request in
// microseconds, and how many times the floor's that is, taken in each round.
type LowRow struct {
	Name    string       `json:"name"`
	CPU     bench.Spread `json:"cpu"`
	ToFloor bench.Spread `json:"cpuToFloor"`
}

// Row is a contender in closed loops. Times are in microseconds; what it
// allocates is for each request.
type Row struct {
	Name        string       `json:"name"`
	CPU         bench.Spread `json:"cpu"`
	Rate        bench.Spread `json:"requestsPerSecond"`
	Busy        bench.Spread `json:"busy"` // of its processor
	Allocations bench.Spread `json:"allocations"`
	Allocated   bench.Spread `json:"allocatedBytes"`
	Resident    bench.Spread `json:"residentBytes"`
	// ToFloor and ToOurs are ratios of processor time, taken in each round.
	ToFloor bench.Spread `json:"cpuToFloor"`
	ToOurs  bench.Spread `json:"cpuToFastadmit"`
}

// RateGroup is what was measured at a rate.
type RateGroup struct {
	Share float64      `json:"shareOfKnee"`
	Rate  float64      `json:"requestsPerSecond"`
	Rows  []LatencyRow `json:"contenders"`
}

// LatencyRow is a contender in open loops: the requests of all rounds, and
// percentiles of their latencies in microseconds.
type LatencyRow struct {
	Name     string  `json:"name"`
	Requests int64   `json:"requests"`
	P50      float64 `json:"p50"`
	P99      float64 `json:"p99"`
	P999     float64 `json:"p999"`
}

// BurstRow is a contender under bursts: processor time per request, connections
// opened per request, and percentiles of the latencies of all rounds, all times
// in microseconds.
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
	return r, json.Unmarshal(content, r)
}

func (r *Results) write(file string) error {
	content, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(content, '\n'), 0o644)
}
