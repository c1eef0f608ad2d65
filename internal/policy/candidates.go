package policy

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/fastadmit/fastadmit/admission/match"
	"github.com/fastadmit/fastadmit/codec"
)

const (
	// attributesMax is the number of combinations of attributes for which an Index stores the
	// policies that their rules select. A cluster with 300 kinds has some 900, because objects
	// are created, updated and deleted. For other combinations, the rules of all policies are
	// compared at each request.
	attributesMax = 2048
	// candidatesMax is the maximum number of policies that an Index stores for all combinations:
	// 16 MiB.
	candidatesMax = 1 << 20
)

// An Index has the policies that are evaluated now. It remembers which of them the rules select,
// so that a request costs nothing for the others. It is for one Set; if policies change, a new
// Index replaces it. Several goroutines may use it at the same time.
type Index[E any] struct {
	all Set[E]

	mu    sync.Mutex // held while candidates are stored
	size  int        // candidates in known
	known atomic.Pointer[map[attributes]*candidates[E]]
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

// A Candidate is a policy that may match a review.
type Candidate[E any] struct {
	*Policy[E]
	selected bool // its rules match, so that only its selectors need to be checked
	matched  bool // its selectors match, too: it has none
}

// candidates are the policies that may match requests with some attributes.
type candidates[E any] struct {
	all   []Candidate[E] // in the order of the Set
	index *match.Index   // nil for those that are not stored
}

// Find returns the policies that may match the review, in the order of the Set. The caller must
// not change the result.
func (x *Index[E]) Find(d *Dispatch) []Candidate[E] {
	if d.explainer != nil {
		x.explain(d)
	}
	c := x.of(&d.Request)
	if c.index == nil {
		return c.all
	}
	places := c.index.Find(d.Ctx, d.Review, &d.sent, d)
	if len(places) == len(c.all) {
		return c.all
	}
	found := make([]Candidate[E], len(places))
	for i, place := range places {
		found[i] = c.all[place]
	}
	return found
}

// of returns the policies that may match requests with the attributes of r.
func (x *Index[E]) of(r *Request) *candidates[E] {
	a := attributes{r.sent.Operation, r.sent.Resource, r.original.Resource, r.sent.SubResource, r.sent.Namespace == ""}
	if known := x.known.Load(); known != nil {
		if c := (*known)[a]; c != nil {
			return c
		}
	}
	c := new(candidates[E])
	for _, p := range x.all {
		if len(p.bindings()) == 0 {
			continue
		}
		if verdict := p.matcher.verdict(r); verdict != unselected {
			c.all = append(c.all, Candidate[E]{p, verdict == selected, verdict == selected && p.matcher.selectors.MatchesAll()})
		}
	}
	x.store(a, c)
	return c
}

// store indexes and stores the candidates, unless there are too many already: for one request, an
// index costs more than it saves.
func (x *Index[E]) store(a attributes, c *candidates[E]) {
	x.mu.Lock()
	defer x.mu.Unlock()
	last := x.known.Load()
	if last == nil {
		last = new(map[attributes]*candidates[E])
	}
	if (*last)[a] != nil || len(*last) >= attributesMax || x.size+len(c.all) > candidatesMax {
		return
	}
	entries := make([]match.Entry, len(c.all))
	for i := range c.all {
		entries[i] = c.all[i].matcher.entry()
	}
	c.index = match.NewIndex(entries)
	x.size += len(c.all)
	known := make(map[attributes]*candidates[E], len(*last)+1)
	maps.Copy(known, *last)
	known[a.clone()] = c
	x.known.Store(&known)
}

// boundBy are the bindings of a policy, sorted by name.
type boundBy struct {
	all   []*Binding
	index *match.Index
}

func newBoundBy(all []*Binding) *boundBy {
	entries := make([]match.Entry, len(all))
	for i, b := range all {
		if b.err == nil { // a nil Matcher is always called, and fails then
			entries[i] = b.matcher.entry()
		}
	}
	return &boundBy{all, match.NewIndex(entries)}
}
