package recording

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/codec"
)

// lastApplied is the annotation in which "kubectl apply" keeps a copy of the object.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// apiExtra is the prefix of the extra attributes of users that kube-apiserver sets. They name the Pod,
// the node and the credential of a token, and are no secrets. NodeRestriction and policies read them.
const apiExtra = "authentication.kubernetes.io/"

// A redaction replaces secrets in a review. It does not change the names of members, because policies
// may read them.
type redaction struct {
	codec.Object
	leftOut []string
}

// Redact returns a review in which empty strings replace secrets, and the paths of the replaced values:
//
//   - the values of data and stringData of Secrets, and their copy by "kubectl apply"
//   - the tokens in TokenRequests and TokenReviews
//   - the arguments of commands of pods/exec, and the query of proxied paths
//   - the values in the user's extra attributes, except those that kube-apiserver sets
//
// The result is body if there are none.
func Redact(body []byte) ([]byte, []string, error) {
	var r redaction
	r.Reset(body)
	request := r.Get("request")
	for name, values := range request.Get("userInfo", "extra").Members() {
		if !strings.HasPrefix(name, apiExtra) {
			r.clearElements(values.Len(), 0, "request", "userInfo", "extra", name)
		}
	}
	isSecret := func(resource string) bool {
		return request.Get(resource, "resource").String() == "secrets" && request.Get(resource, "group").String() == ""
	}
	secret := isSecret("resource") || isSecret("requestResource")
	for _, at := range [...]string{"object", "oldObject"} {
		r.object(at, secret)
	}
	if err := r.Err(); err != nil {
		return nil, nil, fmt.Errorf("recording: cannot read a review: %w", err)
	}
	if len(r.leftOut) == 0 {
		return body, nil, nil
	}
	text := r.Root().AppendJSON(nil)
	if err := r.Err(); err != nil {
		return nil, nil, fmt.Errorf("recording: cannot leave out secrets: %w", err)
	}
	return text, r.leftOut, nil
}

// SecretFields returns the paths of the fields of an object that hold secrets, alone or in their members. isSecret
// is true if the request is for a Secret.
func SecretFields(kind string, isSecret bool) [][]string {
	switch {
	case isSecret || kind == "Secret":
		return [][]string{{"data"}, {"stringData"}, {"metadata", "annotations", lastApplied}}
	case kind == "TokenRequest":
		return [][]string{{"status", "token"}}
	case kind == "TokenReview":
		return [][]string{{"spec", "token"}}
	case kind == "PodExecOptions":
		return [][]string{{"command"}}
	case strings.HasSuffix(kind, "ProxyOptions"):
		return [][]string{{"path"}}
	}
	return nil
}

// object replaces the secrets of an object of the request.
func (r *redaction) object(at string, secret bool) {
	object := r.Get("request", at)
	kind := object.Get("kind").String()
	for _, field := range SecretFields(kind, secret) {
		path := append([]string{"request", at}, field...)
		switch value := r.Get(path...); {
		case field[0] == "command":
			r.clearElements(value.Len(), 1, path...)
		case field[0] == "path":
			if plain, _, ok := strings.Cut(value.String(), "?"); ok {
				r.set(plain, path...)
			}
		case value.Kind() == codec.KindObject:
			r.clearMembers(path...)
		default:
			r.clear(path...)
		}
	}
}

func (r *redaction) set(text string, path ...string) {
	r.SetString(text, path...)
	r.leftOut = append(r.leftOut, strings.Join(path, "."))
}

// clear replaces the text at a path, unless it is missing or empty.
func (r *redaction) clear(path ...string) {
	if value := r.Get(path...); value.Exists() && value.JSON() != `""` {
		r.set("", path...)
	}
}

func (r *redaction) clearMembers(path ...string) {
	var names []string
	for name := range r.Get(path...).Members() {
		names = append(names, strings.Clone(name))
	}
	for _, name := range names {
		r.clear(append(slices.Clone(path), name)...)
	}
}

// clearElements replaces the elements of an array with n elements, beginning with the index from.
func (r *redaction) clearElements(n, from int, path ...string) {
	if n <= from {
		return
	}
	elements := make([]string, n)
	for i, value := range r.Get(path...).Elements() {
		if i < from {
			elements[i] = value.String()
		}
	}
	text, _ := json.Marshal(elements) // strings can be marshalled
	r.Set(string(text), path...)
	r.leftOut = append(r.leftOut, strings.Join(path, "."))
}

// withoutPatch removes the patch from an answer, because it may contain the secrets of the object.
func withoutPatch(answer []byte) ([]byte, error) {
	var review, response map[string]json.RawMessage
	if err := kjson.UnmarshalCaseSensitivePreserveInts(answer, &review); err != nil {
		return nil, err
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(review["response"], &response); err != nil {
		return nil, err
	}
	delete(response, "patch")
	delete(response, "patchType")
	var err error
	if review["response"], err = json.Marshal(response); err != nil {
		return nil, err
	}
	return json.Marshal(review)
}
