// Package tables reads e2e/testdata: the cases of Kubernetes' own tests of its admission plugins,
// restated as manifests.
package tables

import (
	"cmp"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Case is a write of an object: its update if there is an old object, otherwise its creation,
// unless Operation is set.
type Case struct {
	About string `json:"about"`
	// Given are the objects that exist before. Those in a namespace are in the case's namespace,
	// unless they name another.
	Given []map[string]any `json:"given,omitempty"`
	// Namespace contains the labels and annotations of the case's namespace.
	Namespace *Metadata `json:"namespace,omitempty"`
	// User is the user who sends the request; nil for one who may do everything.
	User *User `json:"user,omitempty"`
	// DryRun is set if the request is a dry run.
	DryRun bool `json:"dryRun,omitempty"`
	// Operation is empty for writes, DELETE for the deletion of the object, and CONNECT for
	// attaching to it or for the subresource exec or portforward.
	Operation   string         `json:"operation,omitempty"`
	Subresource string         `json:"subresource,omitempty"`
	Object      map[string]any `json:"object"`
	OldObject   map[string]any `json:"oldObject,omitempty"`
}

// User is a user as in requests.
type User struct {
	Username string   `json:"username"`
	Groups   []string `json:"groups,omitempty"`
}

// Metadata are the metadata of a namespace.
type Metadata struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// Phase is Missing for a namespace that does not exist, Terminating for one
	// that was deleted, and empty for any other.
	Phase string `json:"phase,omitempty"`
}

// IsMissing reports whether the case's namespace does not exist.
func (c *Case) IsMissing() bool { return c.Namespace != nil && c.Namespace.Phase == "Missing" }

// IsTerminating reports whether the case's namespace was deleted.
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

// GivenObjects returns the objects that exist before.
func (c *Case) GivenObjects() []*unstructured.Unstructured {
	var given []*unstructured.Unstructured
	for _, object := range c.Given {
		given = append(given, &unstructured.Unstructured{Object: object})
	}
	return given
}

// NewNamespace returns the case's namespace with this name.
func (c *Case) NewNamespace(name string) *unstructured.Unstructured {
	namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	namespace.SetName(name)
	if c.Namespace != nil {
		namespace.SetLabels(c.Namespace.Labels)
		namespace.SetAnnotations(c.Namespace.Annotations)
	}
	return namespace
}

// Connection returns the subresource of a CONNECT.
func (c *Case) Connection() string { return cmp.Or(c.Subresource, "attach") }

// New returns the object to write. It returns nil if there is none.
func (c *Case) New() *unstructured.Unstructured { return &unstructured.Unstructured{Object: c.Object} }

// Old returns the object that is replaced. It returns nil if there is none.
func (c *Case) Old() *unstructured.Unstructured {
	if c.OldObject == nil {
		return nil
	}
	return &unstructured.Unstructured{Object: c.OldObject}
}
