// Package tables reads e2e/testdata: what Kubernetes' own tests of its
// admission plugins try, restated as manifests.
package tables

import (
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Case is a write of an object: its creation, or its update where there was an
// old object, unless the operation is another one.
type Case struct {
	About string `json:"about"`
	// Operation is empty for writes, DELETE for the deletion of the object, and
	// CONNECT for attaching to it.
	Operation   string         `json:"operation,omitempty"`
	Subresource string         `json:"subresource,omitempty"`
	Object      map[string]any `json:"object"`
	OldObject   map[string]any `json:"oldObject,omitempty"`
}

// Read returns the cases in a file.
func Read(file string) ([]Case, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var cases []Case
	if err := yaml.UnmarshalStrict(content, &cases); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return cases, nil
}

// New returns the object to write, Old the one it replaces, nil if there is
// none.
func (c *Case) New() *unstructured.Unstructured { return &unstructured.Unstructured{Object: c.Object} }

// Old returns the object that is replaced, nil if there is none.
func (c *Case) Old() *unstructured.Unstructured {
	if c.OldObject == nil {
		return nil
	}
	return &unstructured.Unstructured{Object: c.OldObject}
}
