package match

import (
	"sync"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/fastadmit/fastadmit/codec"
)

// matchesLabels reports whether a selector matches the labels of an object,
// read from its text and edits when the selector asks for them. Not ok is what
// has no metadata, as the options of a CONNECT request, or is not there at all.
//
// The labels of typed objects are strings. Those of a custom resource may be
// anything if another webhook's patch made them: null is "" then, and with a
// value of another kind, all labels count as missing (k8s.io/apimachinery
// pkg/apis/meta/v1/unstructured NestedNullCoercingStringMap). A custom resource
// without any metadata would have no labels; but the API server has written
// managed fields into it before it asks.
func matchesLabels(selector labels.Selector, o *codec.Object) (matched, ok bool) {
	metadata := o.Get("metadata")
	if !metadata.Exists() {
		return false, false
	}
	all := metadata.Get("labels")
	if !areLabels(all) {
		return selector.Matches(labels.Set(nil)), true
	}
	l := objectLabelsPool.Get().(*objectLabels)
	l.all = all
	matched = selector.Matches(l)
	l.all = codec.Value{} // which belongs to the review
	objectLabelsPool.Put(l)
	return matched, true
}

func areLabels(all codec.Value) bool {
	for _, value := range all.Members() {
		if kind := value.Kind(); kind != codec.KindString && kind != codec.KindNull {
			return false
		}
	}
	return all.Kind() == codec.KindObject
}

// objectLabels are labels to apimachinery. They are pooled because an interface
// keeps what it holds on the heap.
type objectLabels struct{ all codec.Value }

var objectLabelsPool = sync.Pool{New: func() any { return new(objectLabels) }}

// Has implements labels.Labels.
func (l *objectLabels) Has(label string) bool { return l.all.Get(label).Exists() }

// Get implements labels.Labels.
func (l *objectLabels) Get(label string) string { return l.all.Get(label).String() }

// Lookup implements labels.Labels.
func (l *objectLabels) Lookup(label string) (string, bool) {
	value := l.all.Get(label)
	return value.String(), value.Exists()
}
