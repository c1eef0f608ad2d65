package review

import (
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/discovery"
	"github.com/fastadmit/fastadmit/internal/offline/report"
	"github.com/fastadmit/fastadmit/internal/workload"
)

// Live reviews existing objects of a cluster one by one. Only one goroutine at a time may
// use it.
type Live struct {
	reviewer *reviewer
	object   codec.Object
}

// NewLive returns a Live. The Operation of the options is CREATE or UPDATE. Resources,
// Cluster and Old are not used.
func NewLive(o Options) *Live {
	o.Cluster = nil // what plugins see is the cluster that the objects are from
	return &Live{reviewer: newSession(&o).newReviewer()}
}

// Review reviews an object. text is its JSON as returned by the API server.
//
// With CREATE, the object is reviewed as if it were created now. Fields that the API server
// sets are removed (uid, resourceVersion, status and so on). If an object says that a
// controller of kube-controller-manager owns it, it is reviewed with the controller as the
// user, and again with the User of the options, unless TrustOwners is set: anybody who may
// create an object may write an ownerReference. The result is the worse one of the two.
// With UPDATE, the object is reviewed as an update without a change. An object that is
// being deleted is skipped.
func (l *Live) Review(ctx context.Context, kind schema.GroupVersionKind, resource discovery.Resource, text []byte) *report.Result {
	r, object := l.reviewer, &l.object
	object.Reset(typed(kind, text))
	q := &request{
		Kind: metav1.GroupVersionKind(kind), Resource: metav1.GroupVersionResource(resource.GroupVersionResource),
		Name:      strings.Clone(object.Get("metadata", "name").String()),
		Namespace: strings.Clone(object.Get("metadata", "namespace").String()),
		Operation: r.Operation, UserInfo: &r.User, DryRun: r.DryRun,
	}
	if resource.GroupResource() == (schema.GroupResource{Resource: "namespaces"}) {
		q.Namespace = q.Name // as kube-apiserver has it
	}
	result := &report.Result{
		APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Resource: resource.Resource, Operation: string(q.Operation),
		Namespace: q.Namespace, Name: q.Name, UID: strings.Clone(object.Get("metadata", "uid").String()),
	}
	if object.Get("metadata", "deletionTimestamp").IsSet() {
		result.Decision, result.Message = report.Skipped, "it is being deleted"
		return result
	}
	var old []byte
	owner := ""
	if q.Operation == codec.Update {
		old = object.Root().AppendJSON(nil)
	} else {
		owner = controllerOf(object)
		asNew(object)
	}
	if err := object.Err(); err != nil {
		result.Decision, result.Message = report.Broken, "cannot be read: "+err.Error()
		return result
	}
	created := object.Root().AppendJSON(nil)
	if owner == "" {
		l.ask(ctx, q, created, old, result)
		return result
	}
	second := *result
	q.UserInfo = controllerUser(owner)
	result.User = q.UserInfo.Username
	l.ask(ctx, q, created, nil, result)
	if r.TrustOwners || severity(result) == severities-1 {
		return result
	}
	q.UserInfo = &r.User
	second.User = r.User.Username
	if l.ask(ctx, q, created, nil, &second); severity(&second) > severity(result) {
		return &second
	}
	return result
}

// ask reviews an object, and the objects that controllers create for it.
func (l *Live) ask(ctx context.Context, q *request, object, old []byte, result *report.Result) {
	if stored := l.reviewer.ask(ctx, q, object, old, result); stored != nil {
		l.reviewer.children(ctx, result, schema.GroupVersionKind(q.Kind), q.Resource.Resource, stored, &l.reviewer.User)
	}
}

// severities is the number of values of severity.
const severities = 4

// severity returns how bad a result is: 0 without findings, 1 with warnings, 2 if a review
// was not possible, 3 for a denial.
func severity(result *report.Result) (worst int) {
	if result.IsNews() {
		worst = 1
	}
	result.Walk(func(r *report.Result, _ int) {
		switch r.Decision {
		case report.Denied:
			worst = severities - 1
		case report.Failed, report.Broken:
			worst = max(worst, 2)
		}
	})
	return worst
}

// typed returns the object with its kind, which elements of typed lists do not
// have.
func typed(kind schema.GroupVersionKind, text []byte) []byte {
	var head codec.Object
	head.Reset(text)
	if head.Get("kind").IsSet() || len(text) < 2 || text[0] != '{' {
		return text
	}
	separator := ","
	if text[1] == '}' {
		separator = ""
	}
	whole := make([]byte, 0, len(text)+len(kind.Kind)+len(kind.Group)+len(kind.Version)+32)
	whole = append(whole, `{"kind":"`+kind.Kind+`","apiVersion":"`+kind.GroupVersion().String()+`"`+separator...)
	return append(whole, text[1:]...)
}

// asNew removes what an API server sets when an object is created or changed
// (k8s.io/apiserver pkg/registry/rest BeforeCreate).
func asNew(object *codec.Object) {
	for _, field := range [...]string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink"} {
		object.Remove("metadata", field)
	}
	object.Remove("status")
}

// controllerOf returns the controller of kube-controller-manager that made the object,
// according to its ownerReferences, "" if none did.
func controllerOf(object *codec.Object) string {
	for _, owner := range object.Get("metadata", "ownerReferences").Elements() {
		if owner.Get("controller").Bool() {
			kind := schema.FromAPIVersionAndKind(owner.Get("apiVersion").String(), owner.Get("kind").String())
			return workload.Controller(kind.GroupKind())
		}
	}
	return ""
}
