// Package documents reads objects from the manifest files of plugins, such as policies,
// webhook configurations and PodPresets. It reads them as kube-apiserver reads the folder
// staticManifestsDir (k8s.io/apiserver pkg/admission/plugin/manifest).
package documents

import (
	"bufio"
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/alike"
)

// A Reader reads documents of some kinds, and lists of them.
type Reader struct {
	// APIVersions and Kinds are the allowed values of these fields. Others are errors.
	APIVersions, Kinds []string
	// Own has the apiVersions of further kinds, which have no other.
	Own map[string]string
	// Add is called for each document or item of a list. content is JSON. Add returns all
	// errors in the document.
	Add func(file *admission.File, kind string, content []byte) []error
}

// Read reads the documents of files and calls Add for each. It returns all errors, each
// as a *admission.FileError.
func (r *Reader) Read(files []admission.File) (errs []error) {
	for i := range files {
		for _, err := range r.read(&files[i]) {
			errs = append(errs, &admission.FileError{File: files[i].Name, Err: err})
		}
	}
	return errs
}

func (r *Reader) read(file *admission.File) (errs []error) {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(file.Content)))
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
			errs = append(errs, r.add(file, content, metav1.TypeMeta{})...)
		}
	}
}

// add adds a document or the items of a list. defaults is the type of a document without
// apiVersion and kind.
func (r *Reader) add(file *admission.File, content []byte, defaults metav1.TypeMeta) []error {
	var kind metav1.TypeMeta
	if err := json.UnmarshalCaseSensitivePreserveInts(content, &kind); err != nil {
		return []error{err}
	}
	if kind.Kind == "" && kind.APIVersion == "" {
		kind = defaults
	}
	single, isList := strings.CutSuffix(kind.Kind, "List")
	if kind.APIVersion != "v1" || kind.Kind != "List" {
		if err := r.check(kind.APIVersion, kind.Kind, single); err != nil {
			return []error{err}
		}
	}
	if isList {
		return r.addList(file, content, metav1.TypeMeta{APIVersion: kind.APIVersion, Kind: single})
	}
	return r.Add(file, kind.Kind, content)
}

// check returns an error if documents may not have a type. single is the kind, or of a list that of its items.
func (r *Reader) check(apiVersion, kind, single string) error {
	if own := r.Own[single]; own != "" {
		if apiVersion != own {
			return fmt.Errorf("apiVersion of a %s: got %q, want %q", kind, apiVersion, own)
		}
		return nil
	}
	if !slices.Contains(r.APIVersions, apiVersion) {
		return fmt.Errorf("apiVersion: got %q, want one of %q", apiVersion, r.APIVersions)
	}
	if !slices.Contains(r.Kinds, single) {
		all := append(slices.Clip(r.Kinds), slices.Sorted(maps.Keys(r.Own))...)
		return fmt.Errorf("kind: got %q, want %s or a list of them", kind, strings.Join(all, ", "))
	}
	return nil
}

// addList adds the items of a list. itemType is the type of items without apiVersion and kind.
func (r *Reader) addList(file *admission.File, content []byte, itemType metav1.TypeMeta) (errs []error) {
	var list struct {
		metav1.TypeMeta `json:",inline"`
		metav1.ListMeta `json:"metadata"`
		Items           []stdjson.RawMessage `json:"items"`
	}
	if errs := Decode(content, &list); errs != nil {
		return errs
	}
	for i, item := range list.Items {
		for _, err := range r.add(file, item, itemType) {
			errs = append(errs, fmt.Errorf("items[%d]: %w", i, err))
		}
	}
	return errs
}

// An Object is an API object with a spec of the type Spec.
type Object[Spec any] struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              Spec `json:"spec"`
}

// DecodeLenient decodes an object of a cluster, which may be invalid. fault means that the spec
// cannot be decoded; the metadata is valid. err means that the object cannot be decoded at
// all. Unknown fields are no error.
func DecodeLenient[Spec any](content []byte) (object Object[Spec], fault, err error) {
	var raw Object[stdjson.RawMessage]
	err = json.UnmarshalCaseSensitivePreserveInts(content, &raw)
	object.TypeMeta, object.ObjectMeta = raw.TypeMeta, raw.ObjectMeta
	if err == nil && raw.Spec != nil {
		fault = json.UnmarshalCaseSensitivePreserveInts(raw.Spec, &object.Spec)
	}
	return object, fault, err
}

// ReadConfig reads the configuration file of a plugin that has no field but
// staticManifestsDir, a folder of manifests. Package config reads the folder into
// admission.Setup.Manifests. content is nil if there is no file. The error joins all errors.
func ReadConfig(content []byte, kind string) error {
	if content == nil {
		return nil
	}
	var c struct {
		APIVersion         string `json:"apiVersion"`
		Kind               string `json:"kind"`
		StaticManifestsDir string `json:"staticManifestsDir"`
	}
	return admission.DecodeConfig(content, &c, func() field.ErrorList {
		return admission.ValidateConfigType(c.APIVersion, "fastadmit.io/v1alpha1", c.Kind, kind)
	})
}

// Named returns the errors with kind and name of their object.
func Named(kind, name string, errs field.ErrorList) (all []error) {
	for _, err := range errs {
		all = append(all, fmt.Errorf("%s %q: %w", kind, name, err))
	}
	return all
}

// Decode decodes a JSON document into the value that into points to. Unknown and duplicate
// fields are errors.
func Decode(content []byte, into any) []error {
	strict, err := alike.UnmarshalStrict(content, into)
	if err != nil {
		return []error{err}
	}
	return strict
}
