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
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/admission"
)

// A Reader reads documents of some kinds, and lists of them.
type Reader struct {
	// APIVersions and Kinds are the allowed values of these fields. Others are errors.
	APIVersions, Kinds []string
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

// add adds what is in a document, which is what otherwise says unless it says what
// it is.
func (r *Reader) add(file *admission.File, content []byte, otherwise metav1.TypeMeta) []error {
	var kind metav1.TypeMeta
	if err := json.UnmarshalCaseSensitivePreserveInts(content, &kind); err != nil {
		return []error{err}
	}
	if kind.Kind == "" && kind.APIVersion == "" {
		kind = otherwise
	}
	single, isList := strings.CutSuffix(kind.Kind, "List")
	if kind.APIVersion != "v1" || kind.Kind != "List" {
		if !slices.Contains(r.APIVersions, kind.APIVersion) {
			return []error{fmt.Errorf("apiVersion: got %q, want one of %q", kind.APIVersion, r.APIVersions)}
		}
		if !slices.Contains(r.Kinds, single) {
			return []error{fmt.Errorf("kind: got %q, want %s or a list of them", kind.Kind, strings.Join(r.Kinds, ", "))}
		}
	}
	if isList {
		return r.addList(file, content, metav1.TypeMeta{APIVersion: kind.APIVersion, Kind: single})
	}
	return r.Add(file, kind.Kind, content)
}

// addList adds the items of a list, which need not say what they are if the list
// does.
func (r *Reader) addList(file *admission.File, content []byte, of metav1.TypeMeta) (errs []error) {
	var list struct {
		metav1.TypeMeta `json:",inline"`
		metav1.ListMeta `json:"metadata"`
		Items           []stdjson.RawMessage `json:"items"`
	}
	if errs := Decode(content, &list); errs != nil {
		return errs
	}
	for i, item := range list.Items {
		for _, err := range r.add(file, item, of) {
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

// DecodeStored decodes an object that was read from a cluster. fault means that the spec
// cannot be decoded; the metadata is valid. err means that the object cannot be decoded at
// all. Unknown fields are no error.
func DecodeStored[Spec any](content []byte) (object Object[Spec], fault, err error) {
	var raw Object[stdjson.RawMessage]
	err = json.UnmarshalCaseSensitivePreserveInts(content, &raw)
	object.TypeMeta, object.ObjectMeta = raw.TypeMeta, raw.ObjectMeta
	if err == nil && raw.Spec != nil {
		fault = json.UnmarshalCaseSensitivePreserveInts(raw.Spec, &object.Spec)
	}
	return object, fault, err
}

// Decode decodes a JSON document into the value that into points to. Unknown and duplicate
// fields are errors.
func Decode(content []byte, into any) []error {
	strict, err := json.UnmarshalStrict(content, into)
	if err != nil {
		return []error{err}
	}
	return strict
}
