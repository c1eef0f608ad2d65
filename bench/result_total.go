package bench

import (
	"cmp"
	"maps"
	"slices"
)

// Total returns the sum of the rounds: the counts of requests and connections, Seconds,
// Faults and Kinds. Latency is that of all requests, and Notes are those of all rounds.
// The other fields are not set, except Interrupted.
func (s *Series) Total() *Result {
	total := &Result{histogram: newHistogram()}
	faults := make(map[Fault]*FaultCount)
	kinds := make(map[string]*KindCount)
	for _, round := range s.Rounds {
		total.Requests += round.Requests
		total.Failed += round.Failed
		total.Retries += round.Retries
		total.Unsent += round.Unsent
		total.Seconds += round.Seconds
		total.Opened += round.Opened
		total.Closed += round.Closed
		total.Interrupted = total.Interrupted || round.Interrupted
		if round.histogram != nil {
			total.histogram.Merge(round.histogram)
		}
		for _, fault := range round.Faults {
			if known := faults[fault.Fault]; known != nil {
				known.Count += fault.Count
				continue
			}
			faults[fault.Fault] = &fault
		}
		for _, kind := range round.Kinds {
			if known := kinds[kind.Kind]; known != nil {
				known.merge(&kind)
				continue
			}
			kinds[kind.Kind] = &kind
		}
		for _, note := range round.Notes {
			if !slices.Contains(total.Notes, note) {
				total.Notes = append(total.Notes, note)
			}
		}
	}
	total.Latency = newLatency(total.histogram)
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		total.Kinds = append(total.Kinds, *kinds[name])
	}
	for _, fault := range slices.SortedFunc(maps.Values(faults), func(a, b *FaultCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Fault, b.Fault))
	}) {
		total.Faults = append(total.Faults, *fault)
	}
	return total
}

func (k *KindCount) merge(other *KindCount) {
	k.Mean = (k.Mean*float64(k.Requests) + other.Mean*float64(other.Requests)) / float64(max(1, k.Requests+other.Requests))
	k.Requests += other.Requests
	k.Allowed += other.Allowed
	k.Denied += other.Denied
	k.Patched += other.Patched
	k.Failed += other.Failed
}
