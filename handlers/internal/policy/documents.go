// Package policy reads admission policies and their bindings from manifests, as
// kube-apiserver reads them from a folder (k8s.io/apiserver v0.36.3
// pkg/admission/plugin/policy/manifest/loader), and decides which reviews they are
// for (pkg/admission/plugin/policy/matching).
package policy

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/handlers/cluster"
	"github.com/fastadmit/fastadmit/handlers/internal/documents"
)

// Documents are policies of a kind and their bindings, each sorted by name, with the
// defaults of the API.
type Documents[P, B metav1.Object] struct {
	Policies []P
	Bindings []B

	from map[metav1.Object]*handlers.File
}

// From returns an error as one of the file that has a policy or a binding.
func (d *Documents[P, B]) From(object metav1.Object, err error) error {
	if file := d.from[object]; file != nil && err != nil {
		return &handlers.FileError{File: file.Name, Err: err}
	}
	return err
}

type (
	// Validating are ValidatingAdmissionPolicies.
	Validating = Documents[*admissionregistrationv1.ValidatingAdmissionPolicy, *admissionregistrationv1.ValidatingAdmissionPolicyBinding]
	// Mutating are MutatingAdmissionPolicies.
	Mutating = Documents[*admissionregistrationv1.MutatingAdmissionPolicy, *admissionregistrationv1.MutatingAdmissionPolicyBinding]
)

const (
	validatingKind = "ValidatingAdmissionPolicy"
	mutatingKind   = "MutatingAdmissionPolicy"
	bindingSuffix  = "Binding"
)

// The versions of documents that are read. The fields are the same in all.
var apiVersions = []string{
	"admissionregistration.k8s.io/v1", "admissionregistration.k8s.io/v1beta1", "admissionregistration.k8s.io/v1alpha1",
}

// A Kind is one of the two kinds of policies, with its bindings.
type Kind[P, B metav1.Object] struct {
	Name string // of the policies

	policies, bindings cluster.KindOf[*cluster.JSON] // as custom resources

	newPolicy    func() P
	newBinding   func() B
	checkPolicy  func(P) field.ErrorList
	checkBinding func(B) field.ErrorList
	paramKind    func(P) *admissionregistrationv1.ParamKind
	bound        func(B) (policy string, ref *admissionregistrationv1.ParamRef)

	// operations are those of requests that the policies are evaluated on, nil for all.
	operations []codec.Operation

	// checkTypes compares the expressions with the schemas of the cluster; nil for a
	// kind whose status does not say that.
	checkTypes func(context.Context, *typeChecker, P) ([]admissionregistrationv1.ExpressionWarning, error)
}

// ValidatingKind are ValidatingAdmissionPolicies.
var ValidatingKind = &Kind[*admissionregistrationv1.ValidatingAdmissionPolicy, *admissionregistrationv1.ValidatingAdmissionPolicyBinding]{
	Name:     validatingKind,
	policies: cluster.ValidatingAdmissionPolicies, bindings: cluster.ValidatingAdmissionPolicyBindings,
	newPolicy: func() *admissionregistrationv1.ValidatingAdmissionPolicy {
		return new(admissionregistrationv1.ValidatingAdmissionPolicy)
	},
	newBinding: func() *admissionregistrationv1.ValidatingAdmissionPolicyBinding {
		return new(admissionregistrationv1.ValidatingAdmissionPolicyBinding)
	},
	checkPolicy: CheckValidating, checkBinding: CheckValidatingBinding,
	paramKind: func(p *admissionregistrationv1.ValidatingAdmissionPolicy) *admissionregistrationv1.ParamKind {
		return p.Spec.ParamKind
	},
	bound: func(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) (string, *admissionregistrationv1.ParamRef) {
		return b.Spec.PolicyName, b.Spec.ParamRef
	},
	checkTypes: func(ctx context.Context, c *typeChecker, p *admissionregistrationv1.ValidatingAdmissionPolicy) ([]admissionregistrationv1.ExpressionWarning, error) {
		return c.checkTypes(ctx, p)
	},
}

// MutatingKind are MutatingAdmissionPolicies.
var MutatingKind = &Kind[*admissionregistrationv1.MutatingAdmissionPolicy, *admissionregistrationv1.MutatingAdmissionPolicyBinding]{
	Name:       mutatingKind,
	operations: []codec.Operation{codec.Create, codec.Update, codec.Connect}, // upstream's mutating/plugin.go
	policies:   cluster.MutatingAdmissionPolicies, bindings: cluster.MutatingAdmissionPolicyBindings,
	newPolicy: func() *admissionregistrationv1.MutatingAdmissionPolicy {
		return new(admissionregistrationv1.MutatingAdmissionPolicy)
	},
	newBinding: func() *admissionregistrationv1.MutatingAdmissionPolicyBinding {
		return new(admissionregistrationv1.MutatingAdmissionPolicyBinding)
	},
	checkPolicy: CheckMutating, checkBinding: CheckMutatingBinding,
	paramKind: func(p *admissionregistrationv1.MutatingAdmissionPolicy) *admissionregistrationv1.ParamKind {
		return p.Spec.ParamKind
	},
	bound: func(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) (string, *admissionregistrationv1.ParamRef) {
		return b.Spec.PolicyName, b.Spec.ParamRef
	},
}

// A reader reads documents of a kind of policies.
type reader[P, B metav1.Object] struct {
	Documents[P, B]
	*Kind[P, B]
}

// Read reads the documents of manifests, lists among them. It refuses what
// kube-apiserver refuses in a folder of manifests: unknown fields, other kinds, two
// of one name, a binding to a policy that is not among them, parameters, and what is
// not valid in the API. Names need not end with ".static.k8s.io" as there, where
// policies of the API must have other names. Files FromAPI may have parameters, and
// bindings to other policies, which are left out. The error joins all that is wrong,
// each of it a handlers.FileError where it is about one file.
func (k *Kind[P, B]) Read(manifests []handlers.File) (*Documents[P, B], error) {
	r := reader[P, B]{Kind: k}
	return &r.Documents, r.readAll(manifests)
}

// ReadValidating is Read of ValidatingKind.
func ReadValidating(manifests []handlers.File) (*Validating, error) {
	return ValidatingKind.Read(manifests)
}

// ReadMutating is Read of MutatingKind.
func ReadMutating(manifests []handlers.File) (*Mutating, error) { return MutatingKind.Read(manifests) }

func (r *reader[P, B]) readAll(manifests []handlers.File) error {
	r.from = make(map[metav1.Object]*handlers.File)
	read := documents.Reader{APIVersions: apiVersions, Kinds: []string{r.Name, r.Name + bindingSuffix}, Add: r.add}
	errs := read.Read(manifests)
	slices.SortStableFunc(r.Policies, func(a, b P) int { return strings.Compare(a.GetName(), b.GetName()) })
	slices.SortStableFunc(r.Bindings, func(a, b B) int { return strings.Compare(a.GetName(), b.GetName()) })
	if len(errs) == 0 {
		errs = r.checkNames()
	}
	return utilerrors.NewAggregate(errs)
}

// checkNames refuses names that are there twice, and bindings of policies that are
// not there.
func (r *reader[P, B]) checkNames() (errs []error) {
	known := make(map[string]bool)
	for _, policy := range r.Policies {
		if known[policy.GetName()] {
			errs = append(errs, r.From(policy, fmt.Errorf("duplicate name %q of a policy", policy.GetName())))
		}
		known[policy.GetName()] = true
	}
	for i, binding := range r.Bindings {
		name := binding.GetName()
		if i > 0 && name == r.Bindings[i-1].GetName() {
			errs = append(errs, r.From(binding, fmt.Errorf("duplicate name %q of a binding", name)))
		}
		if policy, _ := r.bound(binding); !known[policy] && !r.from[binding].FromAPI {
			errs = append(errs, r.From(binding, fmt.Errorf("binding %q references policy %q which does not exist in the manifest directory", name, policy)))
		}
	}
	return errs
}

// add adds a document.
func (r *reader[P, B]) add(file *handlers.File, kind string, content []byte) []error {
	if kind == r.Name {
		return r.addPolicy(file, content)
	}
	return r.addBinding(file, content)
}

func (r *reader[P, B]) addPolicy(file *handlers.File, content []byte) []error {
	policy := r.newPolicy()
	if errs := documents.Decode(content, policy); errs != nil {
		return errs
	}
	r.Policies, r.from[policy] = append(r.Policies, policy), file
	errs := named(r.Name, policy.GetName(), r.checkPolicy(policy))
	if r.paramKind(policy) != nil && !file.FromAPI {
		errs = append(errs, fmt.Errorf("%s %q: spec.paramKind is not supported for static manifests", r.Name, policy.GetName()))
	}
	return errs
}

func (r *reader[P, B]) addBinding(file *handlers.File, content []byte) []error {
	binding := r.newBinding()
	if errs := documents.Decode(content, binding); errs != nil {
		return errs
	}
	r.Bindings, r.from[binding] = append(r.Bindings, binding), file
	name := binding.GetName()
	errs := named(r.Name+bindingSuffix, name, r.checkBinding(binding))
	if _, ref := r.bound(binding); ref != nil && !file.FromAPI {
		errs = append(errs, fmt.Errorf("binding %q: spec.paramRef is not supported for static manifests", name))
	}
	return errs
}

// named says which object the errors are about.
func named(kind, name string, errs field.ErrorList) (all []error) {
	for _, err := range errs {
		all = append(all, fmt.Errorf("%s %q: %w", kind, name, err))
	}
	return all
}
