// Package policy reads admission policies and their bindings from manifests, as
// kube-apiserver reads them from a folder (k8s.io/apiserver v0.36.3
// pkg/admission/plugin/policy/manifest/loader), and decides which reviews they are
// for (pkg/admission/plugin/policy/matching).
package policy

import (
	"bufio"
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/handlers"
)

// Validating are ValidatingAdmissionPolicies and their bindings, each sorted by
// name, with the defaults of the API.
type Validating struct {
	Policies []*admissionregistrationv1.ValidatingAdmissionPolicy
	Bindings []*admissionregistrationv1.ValidatingAdmissionPolicyBinding

	file *handlers.File // that is being read
	from map[metav1.Object]*handlers.File
}

// From returns an error as one of the file that has a policy or a binding.
func (v *Validating) From(object metav1.Object, err error) error {
	if file := v.from[object]; file != nil && err != nil {
		return &handlers.FileError{File: file.Name, Err: err}
	}
	return err
}

// The versions of documents that are read. The fields are the same in all.
var apiVersions = []string{
	"admissionregistration.k8s.io/v1", "admissionregistration.k8s.io/v1beta1", "admissionregistration.k8s.io/v1alpha1",
}

// ReadValidating reads the documents of manifests, lists among them. It refuses
// what kube-apiserver refuses in a folder of manifests: unknown fields, other
// kinds, two of one name, a binding to a policy that is not among them, parameters,
// and what is not valid in the API. Names need not end with ".static.k8s.io" as
// there, where policies of the API must have other names. Files FromAPI may have
// parameters, and bindings to other policies, which are left out. The error joins all
// that is wrong, each of it a handlers.FileError where it is about one file.
func ReadValidating(manifests []handlers.File) (*Validating, error) {
	v := &Validating{from: make(map[metav1.Object]*handlers.File)}
	var errs []error
	for i := range manifests {
		v.file = &manifests[i]
		for _, err := range v.read(v.file) {
			errs = append(errs, &handlers.FileError{File: v.file.Name, Err: err})
		}
	}
	slices.SortStableFunc(v.Policies, func(a, b *admissionregistrationv1.ValidatingAdmissionPolicy) int {
		return strings.Compare(a.Name, b.Name)
	})
	slices.SortStableFunc(v.Bindings, func(a, b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) int {
		return strings.Compare(a.Name, b.Name)
	})
	if len(errs) == 0 {
		errs = v.checkNames()
	}
	return v, utilerrors.NewAggregate(errs)
}

// checkNames refuses names that are there twice, and bindings of policies that are
// not there.
func (v *Validating) checkNames() (errs []error) {
	known := make(map[string]bool)
	for _, policy := range v.Policies {
		if known[policy.Name] {
			errs = append(errs, v.From(policy, fmt.Errorf("duplicate name %q of a policy", policy.Name)))
		}
		known[policy.Name] = true
	}
	for i, binding := range v.Bindings {
		if i > 0 && binding.Name == v.Bindings[i-1].Name {
			errs = append(errs, v.From(binding, fmt.Errorf("duplicate name %q of a binding", binding.Name)))
		}
		if !known[binding.Spec.PolicyName] && !v.from[binding].FromAPI {
			errs = append(errs, v.From(binding, fmt.Errorf("binding %q references policy %q which does not exist in the manifest directory",
				binding.Name, binding.Spec.PolicyName)))
		}
	}
	return errs
}

// read reads the documents of a file.
func (v *Validating) read(manifest *handlers.File) (errs []error) {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifest.Content)))
	for {
		document, err := documents.Read()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				errs = append(errs, err)
			}
			return errs
		}
		content, err := yaml.YAMLToJSONStrict(document)
		switch {
		case err != nil:
			errs = append(errs, err)
		case string(content) != "null":
			errs = append(errs, v.add(content, metav1.TypeMeta{})...)
		}
	}
}

// add adds what is in a document, which is what otherwise says unless it says what
// it is.
func (v *Validating) add(content []byte, otherwise metav1.TypeMeta) []error {
	var kind metav1.TypeMeta
	if err := json.UnmarshalCaseSensitivePreserveInts(content, &kind); err != nil {
		return []error{err}
	}
	if kind.Kind == "" && kind.APIVersion == "" {
		kind = otherwise
	}
	single, isList := strings.CutSuffix(kind.Kind, "List")
	if kind.APIVersion != "v1" || kind.Kind != "List" {
		if !slices.Contains(apiVersions, kind.APIVersion) {
			return []error{fmt.Errorf("apiVersion: got %q, want one of %q", kind.APIVersion, apiVersions)}
		}
	}
	if isList {
		return v.addList(content, metav1.TypeMeta{APIVersion: kind.APIVersion, Kind: single})
	}
	switch kind.Kind {
	case "ValidatingAdmissionPolicy":
		policy := new(admissionregistrationv1.ValidatingAdmissionPolicy)
		if errs := decode(content, policy); errs != nil {
			return errs
		}
		v.Policies, v.from[policy] = append(v.Policies, policy), v.file
		return checkPolicy(policy, v.file.FromAPI)
	case "ValidatingAdmissionPolicyBinding":
		binding := new(admissionregistrationv1.ValidatingAdmissionPolicyBinding)
		if errs := decode(content, binding); errs != nil {
			return errs
		}
		v.Bindings, v.from[binding] = append(v.Bindings, binding), v.file
		return checkBinding(binding, v.file.FromAPI)
	}
	return []error{fmt.Errorf("kind: got %q, want ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding or a list of them", kind.Kind)}
}

// addList adds the items of a list, which need not say what they are if the list
// does.
func (v *Validating) addList(content []byte, of metav1.TypeMeta) (errs []error) {
	var list struct {
		metav1.TypeMeta `json:",inline"`
		metav1.ListMeta `json:"metadata"`
		Items           []stdjson.RawMessage `json:"items"`
	}
	if errs := decode(content, &list); errs != nil {
		return errs
	}
	for i, item := range list.Items {
		for _, err := range v.add(item, of) {
			errs = append(errs, fmt.Errorf("items[%d]: %w", i, err))
		}
	}
	return errs
}

func decode(content []byte, into any) []error {
	strict, err := json.UnmarshalStrict(content, into)
	if err != nil {
		return []error{err}
	}
	return strict
}
