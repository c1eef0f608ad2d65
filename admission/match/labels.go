package match

import (
	"sync"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/fastadmit/fastadmit/codec"
)

// matchesLabels reports whether a selector matches the labels of an object, with its
// edits. It reads only the labels that the selector names. ok is false if there is no
// object, or if it has no metadata, like the options of a CONNECT request.
//
// The labels of typed objects are strings. If another webhook's patch created the labels
// of a custom resource, they may have other types: null means "", and if there is a value
// of another kind, all labels count as missing (k8s.io/apimachinery
// pkg/apis/meta/v1/unstructured NestedNullCoercingStringMap). A custom resource always has
// metadata, because the API server adds managed fields before it calls webhooks.
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
	l.all = codec.Value{} // the pool must not reference the review
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

// objectLabels implements labels.Labels. They are pooled, because converting one to the
// interface would allocate.
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
