package oracle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/fastadmit/fastadmit/admission"
)

// Answer is the answer to a request in one phase.
type Answer struct {
	// Status is the user's error; nil if the request is allowed.
	Status *metav1.Status
	// Object is the object after a Mutate that allowed the request.
	Object []byte
	// Warnings are the warnings, in order.
	Warnings []string
	// Annotations are the annotations of the audit log, without the prefixes of their keys.
	Annotations map[string]string
}

// An Implementation of a plugin.
type Implementation interface {
	answer(r *request, phase admission.Phase) (Answer, error)
}

// A provider is an Implementation in a world in which it can create namespaces.
type provider interface {
	namespaces() ([]string, error) // the names of the existing ones
}

// Comparison is the comparison of the answers to a case.
type Comparison struct {
	// Difference describes how fastadmit's answers differ from Kubernetes'; empty if they do not.
	Difference string
	// Denied, Changed and Warned report what Kubernetes did in either phase. Creating a namespace
	// counts as a change.
	Denied, Changed, Warned bool
	// Skipped is set if the release of Kubernetes does not serve the kind of the request.
	Skipped bool
}

// Compare compares the answers of both to the case, in both phases. It returns an error if one of
// them could not be asked.
func Compare(c *Case, upstream, ours Implementation) (Comparison, error) {
	var comparison Comparison
	r, err := newRequest(c)
	if err != nil {
		return comparison, fmt.Errorf("cannot make the request: %w", err)
	}
	if release, ok := upstream.(*Released); ok {
		if r, err = release.reencode(r); err != nil || r == nil {
			return Comparison{Skipped: true}, err
		}
	}
	before, err := namespacesOf(upstream)
	if err != nil {
		return comparison, err
	}
	for _, phase := range []admission.Phase{admission.Mutate, admission.Validate} {
		want, err := upstream.answer(r, phase)
		if err != nil {
			return comparison, fmt.Errorf("cannot ask Kubernetes: %w", err)
		}
		comparison.Denied = comparison.Denied || want.Status != nil
		comparison.Changed = comparison.Changed || want.Object != nil && !equalJSON(want.Object, r.object)
		comparison.Warned = comparison.Warned || len(want.Warnings) > 0
		got, err := ours.answer(r, phase)
		got.Object, want.Object = unrandom(got.Object, r.object), unrandom(want.Object, r.object)
		if c.Decoded && got.Object != nil && want.Object != nil {
			got.Object, want.Object = reencoded(got.Object), reencoded(want.Object)
		}
		difference := c.compare(got, want)
		for again := 0; err == nil && c.Unordered && difference != "" && want.Status != nil && again < unorderedMax; again++ {
			var failed error
			if want, failed = upstream.answer(r, phase); failed != nil {
				return comparison, fmt.Errorf("cannot ask Kubernetes: %w", failed)
			}
			difference = c.compare(got, want)
		}
		if err != nil {
			difference = fmt.Sprintf("no answer: %v", err)
		}
		if difference != "" {
			comparison.Difference = fmt.Sprintf("%s: %s\nreview %s", phase, difference, r.body)
			return comparison, nil
		}
	}
	difference, quotasChanged, err := compareQuotas(upstream, ours)
	if err != nil {
		return comparison, err
	}
	if difference != "" {
		comparison.Difference = fmt.Sprintf("%s\nreview %s", difference, r.body)
	}
	comparison.Changed = comparison.Changed || quotasChanged
	want, err := namespacesOf(upstream)
	if err != nil || want == nil {
		return comparison, err
	}
	comparison.Changed = comparison.Changed || !slices.Equal(before, want)
	got, err := namespacesOf(ours)
	if err == nil && got != nil && !slices.Equal(got, want) {
		comparison.Difference = fmt.Sprintf("got namespaces %q, want %q\nreview %s", got, want, r.body)
	}
	return comparison, err
}

// compare describes how an answer differs from Kubernetes'. It changes neither, except that it
// sorts warnings: got may be compared with several answers.
func (c *Case) compare(got, want Answer) string {
	if c.Message != nil {
		got, want = got.clone(), want.clone()
		leaveReinvocations(got, want)
		got.unchanced(c.Message)
		want.unchanced(c.Message)
	}
	return got.differs(want)
}

// clone copies the parts that comparing changes.
func (a Answer) clone() Answer {
	a.Status, a.Annotations = a.Status.DeepCopy(), maps.Clone(a.Annotations)
	return a
}

// Mutated returns the object after a mutating call, as the next step of the API server gets it. An API
// server sets defaults before it calls its own plugins, and again after the patch of a webhook
// (k8s.io/apiserver pkg/admission/plugin/webhook/mutating/dispatcher.go). A denial is an error.
func Mutated(c *Case, by Implementation) (runtime.Object, error) {
	r, err := newRequest(c)
	if err != nil {
		return nil, fmt.Errorf("cannot make the request: %w", err)
	}
	answer, err := by.answer(r, admission.Mutate)
	if err != nil {
		return nil, err
	}
	if answer.Status != nil {
		return nil, &apierrors.StatusError{ErrStatus: *answer.Status}
	}
	object, err := runtime.Decode(legacyscheme.Codecs.UniversalDeserializer(), answer.Object)
	if err != nil {
		return nil, fmt.Errorf("%w in %s", err, answer.Object)
	}
	switch by.(type) {
	case *ours, *quotaOurs:
		if !bytes.Equal(answer.Object, r.object) {
			legacyscheme.Scheme.Default(object)
		}
	}
	return object, nil
}

// namespacesOf returns the sorted names of the existing namespaces; nil for an Implementation
// without namespaces.
func namespacesOf(i Implementation) ([]string, error) {
	p, ok := i.(provider)
	if !ok {
		return nil, nil
	}
	return p.namespaces()
}

// random matches the random names that plugins make: the volume of ServiceAccount.
var random = regexp.MustCompile(`"kube-api-access-[a-z0-9]{5}"`)

// unrandom replaces random names in the object by numbers, in the order in which they occur, except
// those that the sent object already had.
func unrandom(object, sent []byte) []byte {
	var names []string
	return random.ReplaceAllFunc(object, func(name []byte) []byte {
		if bytes.Contains(sent, name) {
			return name
		}
		if !slices.Contains(names, string(name)) {
			names = append(names, string(name))
		}
		return fmt.Appendf(nil, `"random %d"`, slices.Index(names, string(name)))
	})
}

var reinvocation = regexp.MustCompile(`round_[1-9]`)

// leaveReinvocations drops the annotations of reinvoked mutating webhooks if the two disagree on
// whether a webhook changed anything. Upstream compares decoded objects, in which an empty map
// equals none, and so reinvokes fewer webhooks.
func leaveReinvocations(got, want Answer) {
	again := func(key, _ string) bool { return reinvocation.MatchString(key) }
	for key, value := range want.Annotations {
		if strings.Contains(value, `"mutated":`) && strings.Contains(value, `"mutated":true`) != strings.Contains(got.Annotations[key],
			`"mutated":true`) {
			maps.DeleteFunc(got.Annotations, again)
			maps.DeleteFunc(want.Annotations, again)
			return
		}
	}
}

func (a Answer) unchanced(message func(string) string) {
	for key, value := range a.Annotations {
		a.Annotations[key] = message(value)
	}
	if a.Status != nil {
		a.Status.Message = message(a.Status.Message)
		if d := a.Status.Details; d != nil {
			for i := range d.Causes {
				d.Causes[i].Message = message(d.Causes[i].Message)
			}
		}
	}
}

// unorderedMax is how often Kubernetes is asked again for one of several answers. A loop over a
// small map begins at one of eight places, so each answer comes at least one time in eight. The
// chance that 200 times are not enough is one in 10^11 cases.
const unorderedMax = 200

func (a Answer) differs(want Answer) string {
	slices.Sort(a.Warnings) // concurrent webhooks add them in any order
	slices.Sort(want.Warnings)
	if got, want := seen(a.Status), seen(want.Status); !reflect.DeepEqual(got, want) {
		return fmt.Sprintf("got status %s, want %s", show(got), show(want))
	}
	if !equalJSON(a.Object, want.Object) {
		return fmt.Sprintf("got object %s, want %s", a.Object, want.Object)
	}
	if !slices.Equal(a.Warnings, want.Warnings) {
		return fmt.Sprintf("got warnings %q, want %q", a.Warnings, want.Warnings)
	}
	if !maps.Equal(a.Annotations, want.Annotations) {
		return fmt.Sprintf("got audit annotations %q, want %q", a.Annotations, want.Annotations)
	}
	return ""
}

// seen returns the part of a status that the plugin determines.
func seen(s *metav1.Status) *metav1.Status {
	if s == nil {
		return nil
	}
	return &metav1.Status{Status: s.Status, Code: s.Code, Reason: s.Reason, Message: s.Message, Details: s.Details}
}

func show(s *metav1.Status) string {
	shown, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(shown)
}

func equalJSON(a, b []byte) bool {
	return bytes.Equal(a, b) || reflect.DeepEqual(decode(a), decode(b))
}

// decode decodes JSON without converting numbers.
func decode(text []byte) any {
	if len(text) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return err.Error()
	}
	return v
}
