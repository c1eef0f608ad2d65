package policies

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/internal/offline/manifest"
	engine "github.com/fastadmit/fastadmit/internal/policy"
)

func isException(t schema.GroupVersionKind) bool {
	return t.Group == customGroup && t.Kind == engine.ExceptionKind
}

// AddExceptions adds the PolicyExceptions in items and returns their number. Items must come from whoever decides about
// exceptions, and never from whoever asks for a review.
func (s *Set) AddExceptions(items []manifest.Item) (added int) {
	for i := range items {
		if item := &items[i]; item.Fault == nil && isException(item.GroupVersionKind()) {
			s.exceptions = append(s.exceptions, document{kind: &kinds[0], item: item, text: item.JSON})
			added++
		}
	}
	return added
}

// NoteExceptions makes Notes say that the PolicyExceptions among items lift nothing.
func (s *Set) NoteExceptions(items []manifest.Item) {
	for i := range items {
		if item := &items[i]; item.Fault == nil && isException(item.GroupVersionKind()) {
			s.notes = append(s.notes, fmt.Sprintf("%s: %s %q lifts nothing here: it is not from --policies, the configuration or the cluster",
				item.Source, item.Kind, item.Metadata.Name))
		}
	}
}
