package policy

import (
	"context"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/policy/cel"
)

// Cluster gives policies access to the cluster.
type Cluster struct {
	Namespaces *cluster.Objects[*corev1.Namespace]
	Access     *cluster.Access
}

// A Dispatch is the state of evaluating policies on one review. Only one goroutine at a
// time may use it. It is valid until the review is released.
type Dispatch struct {
	*Cluster
	Request
	Ctx context.Context
	// Input has the variables of expressions. It is nil before Prepare.
	Input *cel.Input

	namespace                   *corev1.Namespace // of the object, nil for none
	param                       *codec.Object     // that reads the current parameter; nil before the first
	namespaceObject             ref.Val           // nil until an expression asks for it, as those below
	authorizer, requestResource ref.Val
	explainer                   *explainer // nil unless explanations are collected

	reads           *reads        // of the current policy, nil for none
	exceptions      *exceptionSet // nil if there are none
	asked, excepted string        // the policy for which Excepted was called last, and its result
}

// Begin initializes d for a review.
func (d *Dispatch) Begin(ctx context.Context, review *codec.Review, asked *Cluster) {
	*d = Dispatch{Cluster: asked, Request: NewRequest(review), Ctx: ctx}
}

// NewInput returns the Input of expressions that cannot use namespaceObject, such as the
// match conditions of a webhook. The variable authorizer uses access, which may be nil if
// no expression uses the variable.
func NewInput(ctx context.Context, review *codec.Review, access *cluster.Access) *cel.Input {
	if access == nil {
		return cel.NewInput(ctx, review)
	}
	d := new(Dispatch)
	d.Begin(ctx, review, &Cluster{Access: access})
	return d.newInput()
}

func (d *Dispatch) newInput() *cel.Input {
	input := cel.NewInput(d.Ctx, d.Review)
	input.Cluster = d
	return input
}

// End releases the memory of the Dispatch. Values of expressions are invalid after that.
func (d *Dispatch) End() {
	if d.Input != nil {
		d.Input.Release()
	}
	if d.param != nil {
		d.param.Reset(nil) // the pool must not reference the parameter
		paramReaders.Put(d.param)
	}
	*d = Dispatch{}
}

// Prepare creates Input if it is nil, and reads the namespace of the review. It returns
// nil, or a result if the namespace does not exist or cannot be read; the plugin must
// return that result.
func (d *Dispatch) Prepare() *admission.Result {
	if d.Input != nil {
		return nil
	}
	input := d.newInput()
	kind := d.RequestKind()
	if name := d.Namespace(); name != "" && kind != (codec.GroupVersionKind{Version: "v1", Kind: "Namespace"}) {
		namespace, err := d.Namespaces.Get(d.Ctx, "", name)
		if err != nil {
			return withoutNamespace(err)
		}
		d.namespace = namespace
	}
	d.Input = input
	return nil
}

// withoutNamespace is the result of a review whose namespace cannot be read.
func withoutNamespace(err error) *admission.Result {
	switch {
	case apierrors.IsNotFound(err):
		return new(admission.Denied(err))
	case cluster.IsInvalidName(err):
		return new(admission.Denied(apierrors.NewInternalError(err)))
	}
	return new(admission.Errored(err))
}

// Resources implements cel.Cluster.
func (d *Dispatch) Resources() cel.Resources {
	if d.reads == nil {
		return nil
	}
	return requestReads{d.reads, d}
}

// NamespaceObject implements cel.Cluster.
func (d *Dispatch) NamespaceObject() ref.Val {
	if d.namespaceObject == nil {
		d.namespaceObject = d.newNamespaceObject()
	}
	return d.namespaceObject
}

func (d *Dispatch) newNamespaceObject() ref.Val {
	if d.namespace == nil {
		return types.NullValue
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d.namespace)
	if err != nil {
		return types.NewErr("failed to prepare namespace variable for evaluation: %v", err)
	}
	return types.NewStringInterfaceMap(types.DefaultTypeAdapter, content)
}

// Labels implements match.Namespaces.
func (d *Dispatch) Labels(ctx context.Context, name string) (labels.Set, error) {
	namespace, err := d.Namespaces.Get(ctx, "", name)
	if err != nil {
		return nil, err
	}
	return namespace.Labels, nil
}
