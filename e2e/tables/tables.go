// Package tables reads e2e/testdata: what Kubernetes' own tests of its
// admission plugins try, restated as manifests.
package tables

import (
	"cmp"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Case is a write of an object: its creation, or its update where there was an
// old object, unless the operation is another one.
type Case struct {
	About string `json:"about"`
	// Given are the objects that there are before. Those in a namespace are in
	// that of the case, unless they name another.
	Given []map[string]any `json:"given,omitempty"`
	// Namespace has labels and annotations of the case's namespace.
	Namespace *Metadata `json:"namespace,omitempty"`
	// User is who sends the request; nil for one who may do everything.
	User *User `json:"user,omitempty"`
	// DryRun is of a write that nothing is to come of.
	DryRun bool `json:"dryRun,omitempty"`
	// Operation is empty for writes, DELETE for the deletion of the object, and
	// CONNECT for attaching to it, or for what the subresource says: exec,
	// portforward.
	Operation   string         `json:"operation,omitempty"`
	Subresource string         `json:"subresource,omitempty"`
	Object      map[string]any `json:"object"`
	OldObject   map[string]any `json:"oldObject,omitempty"`
}

// User is somebody, as requests know him.
type User struct {
	Username string   `json:"username"`
	Groups   []string `json:"groups,omitempty"`
}

// Metadata are what a namespace has.
type Metadata struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// Phase is Missing for a namespace that does not exist, Terminating for one
	// that was deleted, and empty for any other.
	Phase string `json:"phase,omitempty"`
}

// IsMissing says that the case's namespace does not exist.
func (c *Case) IsMissing() bool { return c.Namespace != nil && c.Namespace.Phase == "Missing" }

// IsTerminating says that the case's namespace was deleted.
func (c *Case) IsTerminating() bool { return c.Namespace != nil && c.Namespace.Phase == "Terminating" }

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

// GivenObjects returns the objects that there are before.
func (c *Case) GivenObjects() []*unstructured.Unstructured {
	var given []*unstructured.Unstructured
	for _, object := range c.Given {
		given = append(given, &unstructured.Unstructured{Object: object})
	}
	return given
}

// NewNamespace returns the case's namespace, under that name.
func (c *Case) NewNamespace(name string) *unstructured.Unstructured {
	namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	namespace.SetName(name)
	if c.Namespace != nil {
		namespace.SetLabels(c.Namespace.Labels)
		namespace.SetAnnotations(c.Namespace.Annotations)
	}
	return namespace
}

// Connection returns the subresource that a CONNECT is for.
func (c *Case) Connection() string { return cmp.Or(c.Subresource, "attach") }

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
