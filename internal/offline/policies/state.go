package policies

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/internal/discovery"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
)

// CheckOther returns the function that says what is wrong with an object in the state of a cluster whose kind no plugin reads
// (cluster.Options.Others): its kind is neither built in nor defined there or among the items of UseParams, nor is it read by a
// program. It is called for definitions first.
func (s *Set) CheckOther() func(kind schema.GroupVersionKind, document []byte) error {
	table := tableOf(s.definitions)
	return func(kind schema.GroupVersionKind, document []byte) error {
		if discovery.IsCRD(kind) {
			return table.AddCRD(document)
		}
		if kind.Kind == "" || kind.Version == "" {
			return &manifest.NoObjectError{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind}
		}
		_, err := table.Find(kind)
		if err == nil || manifest.ReadByProgram(kind) != nil || manifest.IsKustomization(kind) {
			return nil
		}
		if single, isList := strings.CutSuffix(kind.Kind, "List"); isList {
			if _, err := table.Find(kind.GroupVersion().WithKind(single)); err == nil {
				return nil
			}
		}
		return err
	}
}
