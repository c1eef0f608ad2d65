package app

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/fastadmit/fastadmit/internal/manifest"
	"github.com/fastadmit/fastadmit/internal/policies"
)

// policyActions are what --bind-policies may have bindings do; the first is what it
// does without a value.
var policyActions = []string{"Deny", "Warn", "Audit"}

// readPolicies finds the policies in the files of --policies and among the input. It
// returns the other objects of these files.
func (r *reviewOptions) readPolicies(input []manifest.Item) (others []manifest.Item, err error) {
	if r.bindPolicies != "" && !slices.Contains(policyActions, r.bindPolicies) {
		return nil, fmt.Errorf("--bind-policies: got %q, want one of %s", r.bindPolicies, strings.Join(policyActions, ", "))
	}
	var items []manifest.Item
	if len(r.policyFiles) > 0 {
		items = manifest.Read(r.policyFiles, nil)
		var faults []error
		for i := range items {
			if fault := items[i].Fault; fault != nil && !isNoObject(fault) {
				faults = append(faults, fault)
			}
		}
		if faults != nil {
			return nil, failed(errors.Join(faults...))
		}
		if r.policies.Add(items) == 0 {
			return nil, failed(fmt.Errorf("--policies: there is no policy in %s", strings.Join(r.policyFiles, ", ")))
		}
		r.policies.Enable()
	}
	r.policies.Add(input)
	if r.bindPolicies != "" {
		r.policies.Bind(r.bindPolicies)
	}
	return slices.DeleteFunc(items, func(item manifest.Item) bool {
		return item.Fault != nil || policies.IsPolicy(item.GroupVersionKind())
	}), nil
}

// isNoObject says that a document is something else than a Kubernetes object, such as
// a suite of tests.
func isNoObject(fault *manifest.Error) bool {
	_, ok := errors.AsType[*manifest.NoObjectError](fault)
	return ok
}

// notePolicies says which policies are not evaluated, if any could be.
func (r *reviewOptions) notePolicies(w io.Writer) {
	for _, note := range r.policies.Notes() {
		fmt.Fprintf(w, "fastadmit: %s\n", note)
	}
}
