package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/policy/cel"
	"github.com/fastadmit/fastadmit/internal/policy/cel/view"
)

// Params gives access to the objects that policies use as parameters.
type Params interface {
	// OfKind returns the objects of a kind. known is false if the kind does not exist.
	// The error means that the objects cannot be read at the moment.
	OfKind(ctx context.Context, kind admissionregistrationv1.ParamKind) (objects ParamObjects, known bool, err error)
}

// ParamObjects gives access to the objects of one kind.
type ParamObjects interface {
	// Namespaced reports whether the objects are in namespaces.
	Namespaced() bool
	// Get returns an object. namespace is empty for cluster-scoped objects. If the
	// object does not exist, errors.IsNotFound of k8s.io/apimachinery/pkg/api/errors is
	// true for the error.
	Get(ctx context.Context, namespace, name string) (*Param, error)
	// List returns the objects that the selector selects. namespace is empty for
	// cluster-scoped objects, and for those of all namespaces.
	List(ctx context.Context, namespace string, selector labels.Selector) ([]*Param, error)
}

// A Param is an object that a policy uses as a parameter.
type Param struct {
	Namespace, Name string
	// Object is the object with its apiVersion and kind. Several goroutines may use it.
	Object Readable
}

// Readable is JSON text that an Object of the caller reads.
type Readable = cel.Readable

// paramReaders has *codec.Objects, each for the parameters of one review.
var paramReaders = sync.Pool{New: func() any { return new(codec.Object) }}

// SetParam sets the variable params, until it is called again or the review ends. If p is nil,
// params is null. Call Prepare before.
func (d *Dispatch) SetParam(p *Param) {
	if p == nil {
		d.Input.Params = nil
		return
	}
	if d.param == nil {
		d.param = paramReaders.Get().(*codec.Object)
	}
	d.Input.Params = view.ValueOf(p.Object.Read(d.param))
}

// withoutParams is the result for a policy without parameters.
var withoutParams = []*Param{nil}

// collectParams returns the parameters of a binding for a request in a namespace
// (upstream's CollectParams in generic/policy_dispatcher.go).
// Selected objects are sorted by namespace and name; upstream has them in no order.
func collectParams(ctx context.Context, all Params, kind *admissionregistrationv1.ParamKind,
	ref *paramRef, namespace string,
) ([]*Param, error) {
	if kind == nil || ref == nil {
		return withoutParams, nil
	}
	objects, err := objectsOf(ctx, all, kind)
	if err != nil {
		return nil, err
	}
	switch {
	case objects.Namespaced() && ref.Namespace != "":
		namespace = ref.Namespace
	case objects.Namespaced() && namespace == "":
		return nil, errors.New("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
	case !objects.Namespaced() && ref.Namespace != "":
		return nil, errors.New("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
	case !objects.Namespaced():
		namespace = ""
	}
	params, err := find(ctx, objects, ref, namespace)
	if err != nil {
		return nil, err
	}
	if len(params) == 0 && ref.ParameterNotFoundAction != nil && *ref.ParameterNotFoundAction == admissionregistrationv1.DenyAction {
		return nil, errors.New("no params found for policy binding with `Deny` parameterNotFoundAction")
	}
	return params, nil
}

func objectsOf(ctx context.Context, all Params, kind *admissionregistrationv1.ParamKind) (ParamObjects, error) {
	if all != nil {
		if objects, known, err := all.OfKind(ctx, *kind); known || err != nil {
			return objects, err
		}
	}
	return nil, fmt.Errorf("paramKind kind `%v` not known", kind.String())
}

// find returns the objects that a reference names or selects.
func find(ctx context.Context, objects ParamObjects, ref *paramRef, namespace string) ([]*Param, error) {
	switch {
	case ref.Name != "" && ref.Selector != nil:
		return nil, errors.New("paramRef.name and paramRef.selector are mutually exclusive")
	case ref.Name != "":
		param, err := objects.Get(ctx, namespace, ref.Name)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return []*Param{param}, nil
	case ref.Selector == nil:
		return nil, errors.New("one of name or selector must be provided")
	case ref.err != nil:
		return nil, ref.err
	}
	params, err := objects.List(ctx, namespace, ref.selector)
	slices.SortFunc(params, func(a, b *Param) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return params, err
}
