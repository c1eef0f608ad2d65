// Package customresource follows custom resources that configure a plugin, such as policies
// and webhook configurations. It checks them when users write them, calls the plugin after
// each change, and says how objects are decoded and compared. Package status below it writes
// their status.
package customresource

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

// Rule returns the rule that selects the custom resources of some kinds of one group, for
// Check. The kinds are cluster-scoped.
func Rule(kinds ...cluster.KindOf[*cluster.JSON]) admission.Rule {
	rule := admission.Rule{Operations: []codec.Operation{codec.Create, codec.Update}, Versions: []string{"*"}, Scope: "Cluster"}
	for _, kind := range kinds {
		resource := kind.Resource()
		rule.Groups = []string{resource.Group}
		rule.Resources = append(rule.Resources, resource.Resource)
	}
	return rule
}

// Check denies to write an invalid custom resource. field is the field with the
// configuration, and unset is the JSON that takes its place if it is missing. validate gets a
// copy of the object as JSON, with no fields but this one and metadata.
//
// An update that does not change the field is allowed: an invalid object that was written
// while fastadmit did not run can still be labelled and deleted.
//
// If there is no memory for the copy, the chain takes the Err of the review for the result.
func Check(review *codec.Review, field, unset string, validate func(document []byte) error) admission.Result {
	if review.SubResource() != "" || !isWrite(review, field) {
		return admission.Allowed()
	}
	value := review.Object.Get(field).JSON()
	if value == "" {
		value = unset
	}
	err := validate([]byte(`{"metadata":` + review.Object.Get("metadata").JSON() + `,"` + field + `":` + value + `}`))
	if err == nil {
		return admission.Allowed()
	}
	return admission.Denied(&apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Message: err.Error(),
	}})
}

// isWrite reports whether a review creates an object or changes a field of it.
func isWrite(review *codec.Review, field string) bool {
	switch review.Operation() {
	case codec.Create:
		return true
	case codec.Update:
		return review.Object.Get(field).JSON() != review.OldObject.Get(field).JSON()
	}
	return false
}

// Decode decodes a custom resource of the cluster into the value that into points to. The
// object may be invalid. Unknown fields are no error.
func Decode(object *cluster.JSON, into any) error {
	text, err := object.MarshalJSON()
	if err == nil {
		err = json.UnmarshalCaseSensitivePreserveInts(text, into)
	}
	if err != nil {
		return fmt.Errorf("cannot be read: %w", err)
	}
	return nil
}

// IsSame reports whether two objects have the same configuration: only metadata or status
// differ. What was made of the one is good for the other then.
func IsSame(a, b *cluster.JSON) bool {
	return a == b || a.GetUID() != "" && a.GetUID() == b.GetUID() && a.GetGeneration() != 0 && a.GetGeneration() == b.GetGeneration()
}
