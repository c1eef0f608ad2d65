package tolerations

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/turns"
)

// checkEach is the number of tolerations after which a merge checks its context: some tenths
// of a millisecond.
const checkEach = 1024

// Pods and namespaces have about ten tolerations.
const (
	few         = 16 // up to this number, with those to add, a merge does not allocate
	comparedMax = 64 // up to this number, pairwise comparison is faster, and needs no memory
)

// Given is an immutable list of tolerations to add to pods. Several goroutines may use it
// at the same time.
type Given struct {
	all   []Toleration
	texts []string // JSON
}

// NewGiven returns a copy of a list. The error says that a toleration cannot be encoded.
func NewGiven(list []corev1.Toleration) (*Given, error) {
	given := &Given{}
	for i := range list {
		text, err := json.Marshal(&list[i])
		if err != nil {
			return nil, fmt.Errorf("cannot write toleration %d as JSON: %w", i, err)
		}
		given.all, given.texts = append(given.all, Of(&list[i])), append(given.texts, string(text))
	}
	return given, nil
}

// Len returns the number of tolerations.
func (g *Given) Len() int { return len(g.all) }

// Set returns a new Set with the tolerations.
func (g *Given) Set() *Set {
	set := NewSet(len(g.all))
	for i := range g.all {
		set.Add(&g.all[i])
	}
	return set
}

// Merge adds the given tolerations to those of a pod, and removes tolerations that another
// one covers, as k8s.io/kubernetes pkg/util/tolerations MergeTolerations does. It takes
// linear time. If ctx ends, Merge returns an error.
func Merge(ctx context.Context, pod *codec.Object, given ...*Given) error {
	var fewAll [few]Toleration
	var fewKept [few]bool
	all := fewAll[:0]
	own := pod.Get("spec", "tolerations")
	for _, has := range own.Elements() {
		all = append(all, Read(has))
	}
	mine := len(all)
	for _, g := range given {
		all = append(all, g.all...)
	}
	kept, err := mergeInto(ctx, fewKept[:0], all)
	if err != nil {
		return err
	}
	if !slices.Contains(kept[:mine], false) {
		added := kept[mine:]
		for _, g := range given {
			for i, text := range g.texts {
				if added[i] {
					pod.Append(text, "spec", "tolerations")
				}
			}
			added = added[len(g.texts):]
		}
		return nil
	}
	pod.Set(pod.Compose(func(dst []byte) []byte { return appendKept(dst, kept, own, given) }), "spec", "tolerations")
	return nil
}

// appendKept appends the array of the tolerations that are kept.
func appendKept(dst []byte, kept []bool, own codec.Value, given []*Given) []byte {
	dst = append(dst, '[')
	next := func(text string) {
		if kept[0] {
			if dst[len(dst)-1] != '[' {
				dst = append(dst, ',')
			}
			dst = append(dst, text...)
		}
		kept = kept[1:]
	}
	for _, has := range own.Elements() {
		next(has.JSON())
	}
	for _, g := range given {
		for _, text := range g.texts {
			next(text)
		}
	}
	return append(dst, ']')
}

// mergeInto appends for each toleration whether it is kept. It is removed if a kept one
// before it covers it, or if one after it covers it and is not equal. The error is that of
// ctx.
func mergeInto(ctx context.Context, kept []bool, all []Toleration) ([]bool, error) {
	if len(all) > comparedMax {
		return mergeMany(ctx, slices.Clone(all)) // a Set retains pointers to its elements
	}
	for i := range all {
		kept = append(kept, !isCovered(all, kept, i))
	}
	return kept, nil
}

func isCovered(all []Toleration, kept []bool, i int) bool {
	for j := range all[:i] {
		if kept[j] && all[j].Covers(&all[i]) {
			return true
		}
	}
	for j := i + 1; j < len(all); j++ {
		if all[j] != all[i] && all[j].Covers(&all[i]) {
			return true
		}
	}
	return false
}

func mergeMany(ctx context.Context, all []Toleration) (kept []bool, err error) {
	kept = make([]bool, len(all))
	behind, before := NewSet(len(all)), NewSet(len(all))
	for i := len(all) - 1; i >= 0; i-- {
		if i%checkEach == 0 && turns.Continue(ctx) != nil {
			return nil, tooMany(ctx, len(all))
		}
		kept[i] = !behind.coversOther(&all[i])
		behind.Add(&all[i])
	}
	for i := range all {
		if i%checkEach == 0 && turns.Continue(ctx) != nil {
			return nil, tooMany(ctx, len(all))
		}
		if kept[i] = kept[i] && !before.Covers(&all[i]); kept[i] {
			before.Add(&all[i])
		}
	}
	return kept, nil
}

func tooMany(ctx context.Context, n int) error {
	return fmt.Errorf("spec.tolerations: got %d, too many to compare in time: %w", n, ctx.Err())
}

// A Set contains tolerations. It finds out whether one of them covers a toleration
// without comparing each. When all are added, several goroutines may use it at the same
// time.
type Set struct {
	all    map[Toleration]struct{}
	groups map[group]reach
}

// A group has the tolerations that cover the same taints, but for different seconds.
type group struct {
	exists     bool // the operator is Exists; otherwise Equal, with value
	key, value string
	effect     corev1.TaintEffect
}

// reach has the tolerations of a group that cover the most seconds and the second most. They are
// not equal; nil for none.
type reach struct{ first, second *Toleration }

// NewSet returns an empty Set with room for n tolerations.
func NewSet(n int) *Set {
	return &Set{all: make(map[Toleration]struct{}, n), groups: make(map[group]reach)}
}

// Add adds t. The Set keeps the pointer, so t must not change after that.
func (s *Set) Add(t *Toleration) {
	s.all[*t] = struct{}{}
	g := group{key: t.key, effect: t.effect}
	switch t.operator {
	case corev1.TolerationOpExists:
		g.exists = true
	case corev1.TolerationOpEqual, "":
		g.value = t.value
	default:
		return // a toleration with an unknown operator covers only an equal one
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

// Covers reports whether a toleration of the Set covers t; see Toleration.Covers.
func (s *Set) Covers(t *Toleration) bool {
	_, same := s.all[*t]
	return same || s.coversOther(t)
}

// coversOther reports whether a toleration covers t that is not equal to t.
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
