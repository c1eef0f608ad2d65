package tolerations

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// merged is upstream's MergeTolerations with pairwise comparisons.
func merged(all []Toleration) []bool {
	kept := make([]bool, len(all))
next:
	for i := range all {
		for j := range all[:i] {
			if kept[j] && all[j].Covers(&all[i]) {
				continue next
			}
		}
		for j := i + 1; j < len(all); j++ {
			if all[j] != all[i] && all[j].Covers(&all[i]) {
				continue next
			}
		}
		kept[i] = true
	}
	return kept
}

// random returns tolerations that often cover each other, valid and invalid ones.
func random(r *rand.Rand, n int) []Toleration {
	all := make([]Toleration, n)
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	for i := range all {
		all[i] = Toleration{
			key: pick("", "a", "b"), value: pick("", "v", "w"),
			operator: corev1.TolerationOperator(pick("", "Exists", "Equal", "Equal", "Gt")),
			effect:   corev1.TaintEffect(pick("", "NoSchedule", "NoExecute", "NoExecute")),
			seconds:  int64(r.IntN(4)) - 1, limited: r.IntN(2) == 0,
		}
		if !all[i].limited {
			all[i].seconds = 0
		}
	}
	return all
}

func TestMergeInto(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		all := random(r, 1+r.IntN(12))
		want := merged(all)
		if got, err := mergeInto(t.Context(), nil, all); err != nil || !slices.Equal(got, want) {
			t.Fatalf("%+v\ngot  %v, %v\nwant %v", all, got, err, want)
		}
		if got, err := mergeMany(t.Context(), all); err != nil || !slices.Equal(got, want) {
			t.Fatalf("as of many: %+v\ngot  %v, %v\nwant %v", all, got, err, want)
		}
	}
}

func TestSet(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 5000 {
		all := random(r, 1+r.IntN(6))
		set := NewSet(0)
		for i := range all {
			set.Add(&all[i])
		}
		for _, other := range random(r, 10) {
			want := slices.ContainsFunc(all, func(t Toleration) bool { return t.Covers(&other) })
			if got := set.Covers(&other); got != want {
				t.Fatalf("%+v\ncover %+v: got %v", all, other, got)
			}
		}
	}
}

func TestMergeEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := mergeInto(ctx, nil, make([]Toleration, comparedMax)); err != nil {
		t.Errorf("few: %v", err)
	}
	if _, err := mergeInto(ctx, nil, make([]Toleration, comparedMax+1)); err == nil {
		t.Error("it goes on")
	}
}
