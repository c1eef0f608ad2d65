package tolerations

import (
	"context"
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"
)

// checkEach is after how many tolerations Kept looks at its context: some tenths
// of a millisecond.
const checkEach = 1024

// Kept says which tolerations stay when a list is merged: those that no
// toleration which stays and is before them covers, and none behind them that is
// not the same (k8s.io/kubernetes pkg/util/tolerations MergeTolerations). That
// takes linear time. The error is that of ctx.
func Kept(ctx context.Context, all []Toleration) (kept []bool, err error) {
	kept = make([]bool, len(all))
	behind, before := NewSet(len(all)), NewSet(len(all))
	for i := len(all) - 1; i >= 0; i-- {
		if i%checkEach == 0 && ctx.Err() != nil {
			return nil, fmt.Errorf("spec.tolerations: got %d, too many to compare in time: %w", len(all), ctx.Err())
		}
		kept[i] = !behind.coversOther(&all[i])
		behind.Add(&all[i])
	}
	for i := range all {
		if i%checkEach == 0 && ctx.Err() != nil {
			return nil, fmt.Errorf("spec.tolerations: got %d, too many to compare in time: %w", len(all), ctx.Err())
		}
		if kept[i] = kept[i] && !before.Covers(&all[i]); kept[i] {
			before.Add(&all[i])
		}
	}
	return kept, nil
}

// A Set answers whether one of its tolerations covers another one, without
// looking at each. Once filled, it may be used by several goroutines.
type Set struct {
	all    map[Toleration]struct{}
	groups map[group]reach
}

// A group are tolerations that cover the same, but for their seconds.
type group struct {
	exists     bool // or equals value
	key, value string
	effect     corev1.TaintEffect
}

// reach are the two tolerations of a group that cover most, first and second,
// which are not the same; nil for none.
type reach struct{ first, second *Toleration }

// NewSet returns an empty Set with room for n tolerations.
func NewSet(n int) *Set {
	return &Set{all: make(map[Toleration]struct{}, n), groups: make(map[group]reach)}
}

// Add adds t, which must not change afterwards.
func (s *Set) Add(t *Toleration) {
	s.all[*t] = struct{}{}
	g := group{key: t.key, effect: t.effect}
	switch t.operator {
	case corev1.TolerationOpExists:
		g.exists = true
	case corev1.TolerationOpEqual, "":
		g.value = t.value
	default:
		return // it covers only what is the same
	}
	r := s.groups[g]
	switch {
	case r.first == nil || *r.first != *t && t.reaches() > r.first.reaches():
		r.first, r.second = t, r.first
	case *r.first != *t && (r.second == nil || t.reaches() > r.second.reaches()):
		r.second = t
	default:
		return
	}
	s.groups[g] = r
}

// reaches returns for how many seconds t covers others of its group.
func (t *Toleration) reaches() int64 {
	if t.effect == corev1.TaintEffectNoExecute && t.limited {
		return t.seconds
	}
	return math.MaxInt64
}

// Covers reports whether one of the tolerations covers t.
func (s *Set) Covers(t *Toleration) bool {
	_, same := s.all[*t]
	return same || s.coversOther(t)
}

// coversOther reports whether one of the tolerations that are not the same as t
// covers it.
func (s *Set) coversOther(t *Toleration) bool {
	covers := func(g group) bool {
		r := s.groups[g]
		most := r.first
		if most != nil && *most == *t {
			most = r.second
		}
		return most != nil && most.Covers(t)
	}
	for _, effect := range [...]corev1.TaintEffect{t.effect, ""} {
		if covers(group{exists: true, key: t.key, effect: effect}) || covers(group{exists: true, effect: effect}) ||
			t.operator == corev1.TolerationOpEqual && covers(group{key: t.key, value: t.value, effect: effect}) {
			return true
		}
		if t.effect == "" {
			break
		}
	}
	return false
}
