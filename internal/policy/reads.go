package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/policy/cel"
	"github.com/fastadmit/fastadmit/internal/policy/translate"
)

// reads are the objects that translated policies read with Kyverno's functions.
type reads struct {
	params Params
	kinds  map[cel.Resource]readKind
	// only are what the policy reads as its text says, nil for policies in files. Other policies may read more of
	// the same kinds.
	only []translate.Read
	// leftOut is how many reads there are of resources beyond readResourcesMax.
	leftOut int
}

// readResourcesMax is how many resources policies may read together: as many as can be watched (cluster.dynamicKindsMax).
// For each, the API server is asked whenever the policies are read. A namespace may have 50 policies with 16 each.
const readResourcesMax = 32

// of returns the reads for one policy. Who writes a policy of a namespace must not read those of others, however the
// expression calls the functions.
func (r *reads) of(policy []translate.Read) *reads {
	own := *r
	own.only = policy
	return &own
}

// mayRead reports whether the policy may read an object, or list those of a namespace if name is empty.
func (r *reads) mayRead(of cel.Resource, namespace, name string) bool {
	return r.only == nil || slices.ContainsFunc(r.only, func(read translate.Read) bool {
		return read.APIVersion == of.APIVersion && read.Resource == of.Resource &&
			(read.Namespace == "" || read.Namespace == namespace) && (read.Name == "" || read.Name == name)
	})
}

var errHiddenRead = errors.New("the policy may not read it: write resource.Get and resource.List with apiVersion and resource as texts")

// A readKind is the kind of a resource. The kind is empty if the cluster does not have it; err says why it is not known.
type readKind struct {
	kind admissionregistrationv1.ParamKind
	all  bool // the objects of all namespaces are known
	err  error
}

// requestReads are the reads for a request. It implements cel.Resources and answers as Kyverno does, whose functions
// ask the API server.
type requestReads struct {
	*reads
	d *Dispatch
}

// givenReads returns the reads for the objects in admission.Setup.Params.
func givenReads(given []admission.ParamKind) *reads {
	r := &reads{params: GivenParams(given), kinds: make(map[cel.Resource]readKind)}
	for i := range given {
		if k := &given[i]; k.Resource != "" {
			r.kinds[cel.Resource{APIVersion: k.APIVersion, Resource: k.Resource}] = readKind{
				kind: admissionregistrationv1.ParamKind{APIVersion: k.APIVersion, Kind: k.Kind}, all: true,
			}
		}
	}
	return r
}

// objects returns the objects of a resource, nil if the cluster does not have it.
func (r *reads) objects(ctx context.Context, of cel.Resource) (ParamObjects, error) {
	k, known := r.kinds[of]
	switch {
	case !known && r.only != nil:
		return nil, fmt.Errorf("%s of %s are not known: policies read more than %d resources", of.Resource, of.APIVersion, readResourcesMax)
	case !known:
		return nil, nil
	case k.err != nil || k.kind.Kind == "":
		return nil, k.err
	}
	objects, known, err := r.params.OfKind(ctx, k.kind)
	if err == nil && !known {
		err = fmt.Errorf("%s of %s are not known", of.Resource, of.APIVersion)
	}
	return objects, err
}

// Get implements cel.Resources.
func (r requestReads) Get(ctx context.Context, of cel.Resource, namespace, name string) (cel.Readable, error) {
	objects, err := r.objects(ctx, of)
	switch {
	case name == "":
		return nil, errors.New("name is required")
	case !r.mayRead(of, namespace, name):
		return nil, errHiddenRead
	case err != nil:
		return nil, err
	case objects == nil, objects.Namespaced() != (namespace != ""), r.creates(of, namespace, name): // there is no such path
		return nil, nil
	}
	found, err := objects.Get(ctx, namespace, name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, readError(of, err)
	}
	return found.Object, nil
}

// List implements cel.Resources.
func (r requestReads) List(ctx context.Context, of cel.Resource, namespace string, selected map[string]string,
) (kind string, all []cel.Readable, err error) {
	if !r.mayRead(of, namespace, "") {
		return "", nil, errHiddenRead
	}
	objects, err := r.objects(ctx, of)
	if err == nil && (objects == nil || !objects.Namespaced() && namespace != "") {
		err = errors.New("the server could not find the requested resource")
	}
	if err == nil && namespace == "" && !r.kinds[of].all {
		err = fmt.Errorf("%s of %s of all namespaces are not known: call resource.List with these arguments as texts",
			of.Resource, of.APIVersion)
	}
	if err != nil {
		return "", nil, err
	}
	found, err := objects.List(ctx, namespace, labels.Set(selected).AsSelectorPreValidated())
	if err != nil {
		return "", nil, readError(of, err)
	}
	all = make([]cel.Readable, 0, len(found))
	for _, object := range found {
		if !r.creates(of, object.Namespace, object.Name) {
			all = append(all, object.Object)
		}
	}
	return r.kinds[of].kind.Kind, all, nil
}

// creates reports whether an object is created by the request. It does not exist then, also if it is in a file that is
// reviewed.
func (r requestReads) creates(of cel.Resource, namespace, name string) bool {
	asked := r.d.RequestResource()
	return r.d.Operation() == codec.Create && r.d.Name() == name && r.d.Namespace() == namespace && asked.Resource == of.Resource &&
		r.d.SubResource() == "" && schema.GroupVersion{Group: asked.Group, Version: asked.Version}.String() == of.APIVersion
}

// readError replaces what an error says about parameters.
func readError(of cel.Resource, err error) error {
	if unsynced, ok := errors.AsType[*unsyncedError](err); ok {
		if err = unsynced.err; errors.Is(err, errNewReference) {
			err = fmt.Errorf("%s of %s are not known yet: the policy is new", of.Resource, of.APIVersion)
		}
	}
	return err
}

// A readKinds finds the kinds of resources in the cluster. Only one goroutine at a time may use it.
type readKinds struct {
	params *clusterParams
	known  map[cel.Resource]readKind
}

// find adds what policies read to what is wanted, and returns the reads for these policies. Ctx bounds how long the
// API server is asked.
func (k *readKinds) find(ctx context.Context, wanted []translate.Read, used wantedKinds) *reads {
	now, leftOut := make(map[cel.Resource]readKind), 0
	for _, read := range wanted {
		of := cel.Resource{APIVersion: read.APIVersion, Resource: read.Resource}
		found, known := now[of]
		if !known && len(now) == readResourcesMax {
			leftOut++
			continue
		}
		if !known {
			found = k.kindOf(ctx, of)
			found.all = false
		}
		found.all = found.all || read.Namespace == "" && read.Name == ""
		now[of] = found
		if found.kind.Kind != "" {
			used.addRead(schema.FromAPIVersionAndKind(found.kind.APIVersion, found.kind.Kind), read.Namespace, read.Name)
		}
	}
	k.known = now
	return &reads{params: k.params, kinds: now, leftOut: leftOut}
}

// kindOf asks the API server for the kind of a resource. If that fails, it is the kind that it was.
func (k *readKinds) kindOf(ctx context.Context, of cel.Resource) readKind {
	version, err := schema.ParseGroupVersion(of.APIVersion)
	if err != nil {
		return readKind{} // Translate refuses it
	}
	gvk, err := k.params.kinds.KindOf(ctx, version.WithResource(of.Resource))
	switch before := k.known[of]; {
	case err == nil:
		return readKind{kind: admissionregistrationv1.ParamKind{APIVersion: of.APIVersion, Kind: gvk.Kind}}
	case meta.IsNoMatchError(err):
		return readKind{}
	case before.kind.Kind != "":
		return before
	}
	return readKind{err: err}
}

// check returns why resources cannot be read now, apart from those that are being listed. failed are the kinds that
// cannot be watched, which r gets.
func (r *reads) check(failed map[schema.GroupVersionKind]error) (problems []foreignProblem) {
	if r.leftOut > 0 {
		problems = append(problems, foreignProblem{text: fmt.Sprintf("policies read more than %d resources", readResourcesMax)})
	}
	for of, k := range r.kinds {
		gvk := schema.FromAPIVersionAndKind(k.kind.APIVersion, k.kind.Kind)
		var err error
		switch {
		case k.err != nil:
			err = k.err
		case k.kind.Kind == "":
			err = errors.New("the API server does not have them")
		case failed[gvk] != nil:
			err = failed[gvk]
			k.err = err
			r.kinds[of] = k
		default:
			var waiting bool
			if err, waiting = r.params.(*clusterParams).unready(gvk); waiting {
				err = nil
			}
		}
		if err != nil {
			problems = append(problems, foreignProblem{text: fmt.Sprintf("policies read %s of %s: %v", of.Resource, of.APIVersion, err)})
		}
	}
	return problems
}
