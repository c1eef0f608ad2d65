package match

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

// Explain reports what Matches does, and says which rule or selector decided, with the values that it
// compared. why is empty if there are no criteria. An error of Matches is a part of why.
func (m *Matcher) Explain(ctx context.Context, review *codec.Review, a *admission.Attributes, namespaces Namespaces) (matches bool, why string) {
	var reasons []string
	add := func(ok bool, reason string) bool {
		reasons = append(reasons, reason)
		return ok
	}
	matches = (m.rules == nil || add(admission.ExplainRules(m.rules, a))) &&
		(m.objectSelector.Empty() || add(m.explainObject(review))) &&
		(m.namespaceSelector.Empty() || add(m.explainNamespace(ctx, review, a, namespaces)))
	if !matches {
		reasons = reasons[len(reasons)-1:]
	}
	return matches, strings.Join(reasons, "; ")
}

func (m *Matcher) explainObject(review *codec.Review) (matches bool, why string) {
	var compared []string
	for _, object := range []struct {
		name string
		*codec.Object
	}{{"object", &review.Object}, {"oldObject", &review.OldObject}} {
		if !object.Get("metadata").Exists() {
			continue
		}
		compared = append(compared, object.name+" has "+shownLabels(m.objectSelector, labelsOf(object.Object)))
	}
	if compared == nil {
		compared = []string{"the request has no object with metadata"}
	}
	return verdict(m.matchesObject(review), "objectSelector", m.objectSelector, strings.Join(compared, ", "))
}

func (m *Matcher) explainNamespace(ctx context.Context, review *codec.Review, a *admission.Attributes, namespaces Namespaces) (bool, string) {
	const field = "namespaceSelector"
	matches, err := m.matchesNamespace(ctx, review, a, namespaces)
	name := strings.Clone(review.Namespace())
	switch {
	case err != nil:
		return false, fmt.Sprintf("%s %s cannot be evaluated: %s", field, m.namespaceSelector, err)
	case a.Resource.Resource != "namespaces" && name == "":
		return verdict(matches, field, m.namespaceSelector, "the object is in no namespace")
	}
	found, err := namespaces.Labels(ctx, name)
	if a.Resource.Resource == "namespaces" && a.SubResource == "" && (a.Operation == codec.Create || a.Operation == codec.Update) {
		found, err = labelsOf(&review.Object), nil
	}
	if err != nil {
		return false, fmt.Sprintf("%s %s cannot be evaluated: %s", field, m.namespaceSelector, err)
	}
	return verdict(matches, field, m.namespaceSelector, fmt.Sprintf("namespace %s has %s", name, shownLabels(m.namespaceSelector, found)))
}

func verdict(matches bool, field string, selector labels.Selector, compared string) (bool, string) {
	word := "matches"
	if !matches {
		word = "does not match"
	}
	return matches, fmt.Sprintf("%s %s %s: %s", field, admission.ShownValue(selector.String()), word, compared)
}

// labelsOf returns the labels of an object as matchesLabels compares them.
func labelsOf(o *codec.Object) labels.Set {
	all := o.Get("metadata").Get("labels")
	if !areLabels(all) {
		return nil
	}
	set := make(labels.Set)
	for key, value := range all.Members() {
		if _, known := set[key]; !known { // the first one counts
			set[strings.Clone(key)] = strings.Clone(value.String())
		}
	}
	return set
}

// shownLabels returns the labels that a selector names, as in "env=dev, no tier".
func shownLabels(selector labels.Selector, set labels.Set) string {
	var texts []string
	seen := make(map[string]bool)
	requirements, _ := selector.Requirements()
	for i := range requirements {
		key := requirements[i].Key()
		if seen[key] {
			continue
		}
		seen[key] = true
		if value, ok := set[key]; ok {
			texts = append(texts, key+"="+value)
		} else {
			texts = append(texts, "no "+key)
		}
	}
	return admission.ShownValue(strings.Join(texts, ", "))
}
