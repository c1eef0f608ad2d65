package replay

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/recording"
)

// An event has the fields of an audit.k8s.io/v1 Event that are read.
type event struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Level      string          `json:"level"`
	AuditID    string          `json:"auditID"`
	Stage      string          `json:"stage"`
	Verb       string          `json:"verb"`
	User       json.RawMessage `json:"user"`
	Object     *struct {
		Resource    string `json:"resource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
		APIGroup    string `json:"apiGroup"`
		APIVersion  string `json:"apiVersion"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	Status *struct {
		Code    int32  `json:"code"`
		Reason  string `json:"reason"`
		Message string `json:"message"`
	} `json:"responseStatus"`
	RequestObject  json.RawMessage `json:"requestObject"`
	ResponseObject json.RawMessage `json:"responseObject"`
}

// deniedBy begins the message of a request that a webhook denied (k8s.io/apiserver
// pkg/admission/plugin/webhook/errors).
const deniedBy = `admission webhook "`

// parseEvent returns the review of an audit event. ok is false for events without a review of a webhook:
// reads, stages before ResponseComplete, and requests that failed for other reasons than a webhook.
func parseEvent(text []byte, err error) (r record, ok bool) {
	if err != nil && !errors.Is(err, io.EOF) {
		return record{fault: err}, true
	}
	var e event
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &e); err != nil {
		return record{fault: fmt.Errorf("cannot read the audit event: %w", err)}, true
	}
	if e.Kind != "Event" || e.APIVersion != "audit.k8s.io/v1" {
		return record{fault: fmt.Errorf("got kind %q of %q, want an Event of audit.k8s.io/v1", e.Kind, e.APIVersion)}, true
	}
	operation, writes := map[string]codec.Operation{
		"create": codec.Create, "update": codec.Update, "patch": codec.Update, "delete": codec.Delete,
	}[e.Verb]
	if !writes || e.Stage != "ResponseComplete" || e.Object == nil || e.Status == nil {
		return r, false
	}
	denied := strings.HasPrefix(e.Status.Message, deniedBy)
	if e.Status.Code >= 400 && !denied {
		return r, false // something other than a webhook refused the request, perhaps before admission
	}
	r.isPart, r.answer = true, &recording.Answer{Decision: recording.Allowed}
	if denied {
		r.answer.Decision = recording.Denied
		_, r.answer.Message, _ = strings.Cut(e.Status.Message, " denied the request: ")
	}
	r.body, r.lacks, r.fault = e.review(operation)
	return r, true
}

// review makes the AdmissionReview of an event.
func (e *event) review(operation codec.Operation) (body []byte, lacks string, err error) {
	object, old := e.RequestObject, json.RawMessage(nil)
	switch {
	case e.Level != "Request" && e.Level != "RequestResponse":
		return nil, "", fmt.Errorf("an event of level %q does not hold the object; want Request or RequestResponse", e.Level)
	case e.Verb == "patch" && len(e.ResponseObject) == 0:
		return nil, "", errors.New("an event of a patch at level Request holds the patch and not the object; want RequestResponse")
	case e.Verb == "patch":
		object, old, lacks = e.ResponseObject, e.ResponseObject, "the object before the patch and before mutation; the stored one is taken for both"
	case operation == codec.Update:
		old, lacks = object, "the object before the update; the new one is taken for it"
	case operation == codec.Delete:
		object, old = nil, e.ResponseObject
		lacks = "the deleted object"
		var head struct {
			Kind string `json:"kind"`
		}
		if kjson.UnmarshalCaseSensitivePreserveInts(old, &head) == nil && head.Kind != "Status" && head.Kind != "" {
			lacks = ""
		} else {
			old = nil
		}
	}
	if operation != codec.Delete && len(object) == 0 {
		return nil, "", errors.New("the event does not hold the object")
	}
	var head metav1.TypeMeta
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw(object), &head); err != nil {
		return nil, "", fmt.Errorf("cannot read the object: %w", err)
	}
	if operation == codec.Delete && old != nil {
		_ = kjson.UnmarshalCaseSensitivePreserveInts(old, &head) // it was read above
	}
	kind := metav1.GroupVersionKind{Group: e.Object.APIGroup, Version: e.Object.APIVersion, Kind: head.Kind}
	if parsed := head.GroupVersionKind(); parsed.Version != "" {
		kind = metav1.GroupVersionKind(parsed)
	}
	resource := metav1.GroupVersionResource{Group: e.Object.APIGroup, Version: e.Object.APIVersion, Resource: e.Object.Resource}
	body, err = json.Marshal(map[string]any{
		"kind": "AdmissionReview", "apiVersion": codec.APIVersionV1,
		"request": map[string]any{
			"uid": e.AuditID, "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
			"subResource": e.Object.Subresource, "requestSubResource": e.Object.Subresource,
			"name": e.Object.Name, "namespace": e.Object.Namespace, "operation": operation,
			"userInfo": raw(e.User), "object": raw(object), "oldObject": raw(old),
		},
	})
	return body, lacks, err
}
