package policy

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

// GivenParams returns Params for the objects in admission.Setup.Params, nil if kinds is nil.
func GivenParams(kinds []admission.ParamKind) Params {
	if kinds == nil {
		return nil
	}
	return givenParams(kinds)
}

type givenParams []admission.ParamKind

// OfKind implements Params.
func (g givenParams) OfKind(_ context.Context, kind admissionregistrationv1.ParamKind) (ParamObjects, bool, error) {
	for i := range g {
		if g[i].APIVersion == kind.APIVersion && g[i].Kind == kind.Kind {
			return givenObjects{&g[i]}, true, nil
		}
	}
	return nil, false, nil
}

type givenObjects struct{ kind *admission.ParamKind }

// Namespaced implements ParamObjects.
func (g givenObjects) Namespaced() bool { return g.kind.Namespaced }

// Get implements ParamObjects.
func (g givenObjects) Get(_ context.Context, namespace, name string) (*Param, error) {
	for i := range g.kind.Objects {
		if object := &g.kind.Objects[i]; object.Namespace == namespace && object.Name == name {
			return givenParam(object), nil
		}
	}
	gvk := schema.FromAPIVersionAndKind(g.kind.APIVersion, g.kind.Kind)
	return nil, apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, name)
}

// List implements ParamObjects.
func (g givenObjects) List(_ context.Context, namespace string, selector labels.Selector) (params []*Param, err error) {
	for i := range g.kind.Objects {
		if object := &g.kind.Objects[i]; (namespace == "" || object.Namespace == namespace) && selector.Matches(labels.Set(object.Labels)) {
			params = append(params, givenParam(object))
		}
	}
	return params, nil
}

func givenParam(given *admission.ParamObject) *Param {
	return &Param{given.Namespace, given.Name, (*givenObject)(given)}
}

// A givenObject implements Readable.
type givenObject admission.ParamObject

// Read implements Readable.
func (g *givenObject) Read(into *codec.Object) codec.Value {
	into.Reset(g.JSON)
	return into.Root()
}
