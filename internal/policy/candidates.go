package policy

import (
	"crypto/sha256"
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/fastadmit/fastadmit/admission/match"
	"github.com/fastadmit/fastadmit/codec"
)

const (
	// attributesMax is the number of combinations of attributes for which Candidates store what
	// the rules select. A cluster with 300 kinds has some 900, because objects are created,
	// updated and deleted. For other combinations, all rules are compared at each request.
	attributesMax = 2048
	// candidatesMax is the maximum number of candidates that are stored for all combinations:
	// 16 MiB. Combinations for which the rules select the same share them.
	candidatesMax = 1 << 20
)

// A Selecting is a policy or a webhook: a Matcher selects its reviews.
type Selecting interface {
	// Matcher returns the Matcher, nil for one that selects nothing.
	Matcher() *Matcher
}

// Candidates find those of many policies or webhooks that may match a review. They remember
// which of them the rules select, so that a request costs nothing for the others. They are for one list; if
// it changes, new Candidates replace them. Several goroutines may use them at the same time.
type Candidates[T Selecting] struct {
	all []T

	mu    sync.Mutex                           // held while candidates are stored
	size  int                                  // candidates in sets
	sets  map[[sha256.Size]byte]*candidates[T] // that are stored, by the digest of their verdicts
	known atomic.Pointer[map[attributes]*candidates[T]]
}

// NewCandidates returns the Candidates for a list.
func NewCandidates[T Selecting](all []T) *Candidates[T] { return &Candidates[T]{all: all} }

// All returns the list. The caller must not change it.
func (x *Candidates[T]) All() []T { return x.all }

// Unselected returns all of them as candidates whose rules are compared for each review.
func (x *Candidates[T]) Unselected() []Candidate[T] {
	all := make([]Candidate[T], len(x.all))
	for i, one := range x.all {
		all[i] = Candidate[T]{Of: one, Place: int32(i)}
	}
	return all
}

// attributes are what rules compare, apart from names of objects.
type attributes struct {
	operation      codec.Operation
	sent, original codec.GroupVersionResource
	subResource    string
	clusterScoped  bool
}

// clone returns attributes that may be retained after the review.
func (a attributes) clone() attributes {
	clone := func(r codec.GroupVersionResource) codec.GroupVersionResource {
		return codec.GroupVersionResource{
			Group: strings.Clone(r.Group), Version: strings.Clone(r.Version), Resource: strings.Clone(r.Resource),
		}
	}
	a.operation = codec.Operation(strings.Clone(string(a.operation)))
	a.sent, a.original, a.subResource = clone(a.sent), clone(a.original), strings.Clone(a.subResource)
	return a
}

// A Candidate is a policy or webhook that may match a review.
type Candidate[T Selecting] struct {
	Of    T
	Place int32 // in the list

	selected bool // its rules match, so that only its selectors need to be checked
	matched  bool // its selectors match, too: it has none
}

// Matches reports what Matches of the Matcher does.
func (c *Candidate[T]) Matches(d *Dispatch) (bool, error) {
	switch {
	case c.matched:
		return true, nil
	case c.selected:
		return c.Of.Matcher().selectors.Matches(d.Ctx, d.Review, &d.sent, d)
	}
	m := c.Of.Matcher()
	if m == nil {
		return false, nil
	}
	return m.Matches(d.Ctx, &d.Request, d)
}

// candidates are the policies or webhooks that may match requests with some attributes.
type candidates[T Selecting] struct {
	all   []Candidate[T] // in the order of the list
	index *match.Index   // nil for those that are not stored
}

// Find returns those that may match the review, in the order of the list. The caller must
// not change the result.
func (x *Candidates[T]) Find(d *Dispatch) []Candidate[T] {
	c := x.of(&d.Request)
	if c.index == nil {
		return c.all
	}
	places := c.index.Find(d.Ctx, d.Review, &d.sent, d)
	if len(places) == len(c.all) {
		return c.all
	}
	found := make([]Candidate[T], len(places))
	for i, place := range places {
		found[i] = c.all[place]
	}
	return found
}

// of returns the candidates for requests with the attributes of r.
func (x *Candidates[T]) of(r *Request) *candidates[T] {
	a := attributes{r.sent.Operation, r.sent.Resource, r.original.Resource, r.sent.SubResource, r.sent.Namespace == ""}
	if known := x.known.Load(); known != nil {
		if c := (*known)[a]; c != nil {
			return c
		}
	}
	verdicts := make([]byte, len(x.all))
	for i, one := range x.all {
		if m := one.Matcher(); m != nil {
			verdicts[i] = byte(m.verdict(r))
		}
	}
	key := sha256.Sum256(verdicts)
	x.mu.Lock()
	c := x.sets[key]
	x.mu.Unlock()
	if c == nil {
		c = x.selectedBy(verdicts)
	}
	return x.store(a, key, c)
}

// selectedBy returns the candidates with these verdicts.
func (x *Candidates[T]) selectedBy(verdicts []byte) *candidates[T] {
	c := new(candidates[T])
	for i, one := range x.all {
		if v := verdict(verdicts[i]); v != unselected {
			c.all = append(c.all, Candidate[T]{one, int32(i), v == selected, v == selected && one.Matcher().selectors.MatchesAll()})
		}
	}
	return c
}

// store stores candidates for requests with some attributes, and indexes them, unless there are too many
// already: for one request, an index costs more than it saves. key is the digest of their verdicts.
func (x *Candidates[T]) store(a attributes, key [sha256.Size]byte, c *candidates[T]) *candidates[T] {
	x.mu.Lock()
	defer x.mu.Unlock()
	last := x.known.Load()
	if last == nil {
		last = new(map[attributes]*candidates[T])
	}
	if equal := x.sets[key]; equal != nil {
		c = equal
	}
	if (*last)[a] != nil || len(*last) >= attributesMax || c.index == nil && x.size+len(c.all) > candidatesMax {
		return c
	}
	if c.index == nil {
		entries := make([]match.Entry, len(c.all))
		for i := range c.all {
			entries[i] = c.all[i].Of.Matcher().entry()
		}
		c.index = match.NewIndex(entries)
		x.size += len(c.all)
		if x.sets == nil {
			x.sets = make(map[[sha256.Size]byte]*candidates[T])
		}
		x.sets[key] = c
	}
	known := make(map[attributes]*candidates[T], len(*last)+1)
	maps.Copy(known, *last)
	known[a.clone()] = c
	x.known.Store(&known)
	return c
}

// An Index has the policies that are evaluated now.
type Index[E any] struct{ *Candidates[*Policy[E]] }

func newIndex[E any](set Set[E]) *Index[E] { return &Index[E]{NewCandidates(set)} }

// Find returns the policies that may match the review, in the order of the Set. The caller must
// not change the result.
func (x *Index[E]) Find(d *Dispatch) []Candidate[*Policy[E]] {
	if d.explainer != nil {
		x.explain(d)
	}
	return x.Candidates.Find(d)
}

// boundBy are the bindings of a policy, sorted by name.
type boundBy struct {
	// only is the one binding that there is, if it matches whenever the policy does and has no parameters, as most have. nil otherwise.
	only  *Binding
	all   []*Binding
	index *match.Index
}

func newBoundBy(all []*Binding) boundBy {
	entries := make([]match.Entry, len(all))
	for i, b := range all {
		if b.err == nil { // a nil Matcher is always called, and fails then
			entries[i] = b.matcher.entry()
		}
	}
	bound := boundBy{all: all, index: match.NewIndex(entries)}
	if len(all) == 1 && all[0].err == nil && all[0].matchesAll && all[0].paramRef == nil {
		bound.only = all[0]
	}
	return bound
}
