package match

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

// smallest is the least number of Matchers for which an Index is faster than a call of each
// Matcher. An Index reads the labels of the namespace and the object once, which costs as much
// as some ten selectors.
const smallest = 16

// An Index finds those of many Matchers that can match a review, without asking each. It
// stores each Matcher below one thing that the Matcher requires: the name of the object,
// or a value of a label of the namespace or the object. Several goroutines may use it at
// the same time.
type Index struct {
	others            []int32 // places of Matchers that require none of these
	names             map[string][]int32
	namespaces, items labelIndex
}

// labelIndex has places by a label that is required, and all of these places.
type labelIndex struct {
	byLabel map[label][]int32
	all     []int32
}

type label struct{ key, value string }

// An Entry is a Matcher for an Index. If the Matcher is nil, Find always returns its place.
type Entry struct {
	*Matcher
	// Names are the names of the objects that can match. Without names, all can.
	Names []string
}

// NewIndex returns an Index of the entries.
func NewIndex(entries []Entry) *Index {
	x := new(Index)
	if len(entries) < smallest {
		for i := range entries {
			x.others = append(x.others, int32(i))
		}
		return x
	}
	x.names = make(map[string][]int32)
	x.namespaces.byLabel, x.items.byLabel = make(map[label][]int32), make(map[label][]int32)
	namespaces, items := make(map[label]int), make(map[label]int)
	for i := range entries {
		if entries[i].Matcher != nil {
			count(namespaces, entries[i].namespaceSelector)
			count(items, entries[i].objectSelector)
		}
	}
	for i := range entries {
		e := &entries[i]
		switch {
		case e.Matcher == nil:
			x.others = append(x.others, int32(i))
		case len(e.Names) > 0:
			for _, name := range e.Names {
				x.names[name] = append(x.names[name], int32(i))
			}
		case x.namespaces.add(int32(i), rarest(namespaces, e.namespaceSelector)):
		case x.items.add(int32(i), rarest(items, e.objectSelector)):
		default:
			x.others = append(x.others, int32(i))
		}
	}
	return x
}

// add stores a place below each of the labels. It reports whether there are any.
func (x *labelIndex) add(place int32, labels []label) bool {
	for _, l := range labels {
		x.byLabel[l] = append(x.byLabel[l], place)
	}
	if len(labels) > 0 {
		x.all = append(x.all, place)
	}
	return len(labels) > 0
}

// count counts for each label how many selectors require it, or another value of its key.
func count(counts map[label]int, s labels.Selector) {
	requirements, _ := s.Requirements()
	for i := range requirements {
		for _, l := range required(&requirements[i]) {
			counts[l]++
		}
	}
}

// rarest returns the labels of the requirement that the fewest selectors share. Each object
// that the selector matches has one of them. It returns nil if the selector requires no value
// of a label.
func rarest(counts map[label]int, s labels.Selector) (best []label) {
	requirements, _ := s.Requirements()
	fewest := 0
	for i := range requirements {
		labels, sum := required(&requirements[i]), 0
		for _, l := range labels {
			sum += counts[l]
		}
		if len(labels) > 0 && (best == nil || sum < fewest) {
			best, fewest = labels, sum
		}
	}
	return best
}

// required returns the labels of which an object must have one to meet the requirement, nil if
// objects without them can meet it too.
func required(r *labels.Requirement) (all []label) {
	switch r.Operator() {
	case selection.In, selection.Equals, selection.DoubleEquals:
		for _, value := range slices.Sorted(slices.Values(r.ValuesUnsorted())) {
			all = append(all, label{r.Key(), value})
		}
	}
	return all
}

// Find returns the places of the entries whose Matchers must be asked about a review, in
// ascending order. The other Matchers do not match it. a are the attributes of the review.
// If the labels of the namespace cannot be read, Find returns all entries for which they
// count, because each of their Matchers then returns the error. The caller must not change
// the result, and may retain it.
func (x *Index) Find(ctx context.Context, review *codec.Review, a *admission.Attributes, namespaces Namespaces) []int32 {
	if len(x.names) == 0 && len(x.namespaces.all) == 0 && len(x.items.all) == 0 {
		return x.others
	}
	found := slices.Clone(x.others)
	found = append(found, x.names[review.Name()]...)
	found = x.inNamespace(ctx, review, a, namespaces, found)
	if len(x.items.all) > 0 {
		found = x.items.ofObject(&review.Object, found)
		found = x.items.ofObject(&review.OldObject, found)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func (x *Index) inNamespace(ctx context.Context, review *codec.Review, a *admission.Attributes, namespaces Namespaces,
	found []int32) []int32 {
	if len(x.namespaces.all) == 0 {
		return found
	}
	if review.Namespace() == "" || a.Resource.Resource == "namespaces" {
		return append(found, x.namespaces.all...) // the selector applies only to some of these reviews
	}
	all, err := namespaces.Labels(ctx, review.Namespace())
	if err != nil {
		return append(found, x.namespaces.all...)
	}
	for key, value := range all {
		found = append(found, x.namespaces.byLabel[label{key, value}]...)
	}
	return found
}

// ofObject adds the places that a label of an object has, once for each label: a caller other than
// an API server may send the same label many times.
func (x *labelIndex) ofObject(o *codec.Object, found []int32) []int32 {
	all := o.Get("metadata").Get("labels")
	if !areLabels(all) {
		return found
	}
	added := make(map[label]bool)
	for key, value := range all.Members() {
		l := label{key, value.String()}
		if places := x.byLabel[l]; len(places) > 0 && !added[l] {
			added[l] = true
			found = append(found, places...)
		}
	}
	return found
}
