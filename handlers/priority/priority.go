// Package priority is the admission plugin Priority.
//
// It sets the priority of every new pod to the value of its priority class: the scheduler
// schedules pods in this order, and evicts those with a low priority. It also denies a
// second default class. Without it, all pods have the priority zero, whatever their class.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/priority with the default feature gates,
// with which it ignores pod groups.
package priority

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:    "Priority",
		Summary: "sets the priority of pods from their priority class, and allows only one default class",
		Rules: []admission.Rule{
			admission.CreateUpdate("pods"),
			{
				Operations: []codec.Operation{codec.Create, codec.Update},
				Groups:     []string{schedulingv1.GroupName},
				Versions:   []string{"v1"},
				Resources:  []string{"priorityclasses"},
			},
		},
		Mutates:     true,
		Validates:   true,
		OnByDefault: true,
		Needs:       []cluster.Need{cluster.PriorityClasses.Watched()},
		New: func(setup admission.Setup) (admission.Handler, error) {
			p := &plugin{classes: cluster.PriorityClasses.In(setup.Cluster)}
			return admission.Handler{Admit: p.admit, Validate: p.validate}, nil
		},
	}
}

type plugin struct {
	classes *cluster.Objects[*schedulingv1.PriorityClass]
}

// noClass is the class of pods without one if there is no default class (k8s.io/kubernetes
// pkg/apis/scheduling DefaultPriorityWhenNoDefaultClassExists).
var noClass = &schedulingv1.PriorityClass{PreemptionPolicy: new(corev1.PreemptLowerPriority)}

func (p *plugin) admit(_ context.Context, review *codec.Review) admission.Result {
	switch {
	case review.Resource().Resource != "pods":
		return admission.Allowed()
	case review.Operation() == codec.Update:
		restore(review, "priority")
		restore(review, "preemptionPolicy")
		return admission.Allowed()
	}
	class, err := p.resolve(review)
	if err == nil {
		err = apply(class, review)
	}
	if err != nil {
		return admission.Denied(admission.Forbidden(review, err))
	}
	return admission.Allowed()
}

// restore sets an unset field of an updated pod to its old value: clients that do not know
// the field leave it out, and it cannot be changed.
func restore(review *codec.Review, field string) {
	old := review.OldObject.Get("spec", field)
	if old.IsSet() && !review.Object.Get("spec", field).IsSet() {
		review.Object.Set(old.JSON(), "spec", field)
	}
}

// resolve returns the class of a new pod.
func (p *plugin) resolve(review *codec.Review) (*schedulingv1.PriorityClass, error) {
	if name := review.Object.Get("spec", "priorityClassName").String(); name != "" {
		class, known := p.classes.Cached("", name)
		if !known {
			return nil, fmt.Errorf("no PriorityClass with name %v was found", name)
		}
		return class, nil
	}
	class, err := p.byDefault()
	if class == nil {
		class = noClass
	}
	return class, err
}

// apply sets the values of the class in a new pod. It returns an error if the pod has other
// values.
func apply(class *schedulingv1.PriorityClass, review *codec.Review) error {
	pod, spec := &review.Object, review.Object.Get("spec")
	given, isGiven := spec.Get("priority").Int64()
	if isGiven && given != int64(class.Value) {
		return fmt.Errorf("the integer value of priority (%d) must not be provided in pod spec; "+
			"priority admission controller computed %d from the given PriorityClass name", given, class.Value)
	}
	// Classes from old API servers have no policy.
	policy := spec.Get("preemptionPolicy")
	if class.PreemptionPolicy != nil && policy.IsSet() && !policy.EqualString(string(*class.PreemptionPolicy)) {
		return fmt.Errorf("the string value of PreemptionPolicy (%s) must not be provided in pod spec; "+
			"priority admission controller computed %s from the given PriorityClass name", policy.String(), *class.PreemptionPolicy)
	}
	if class.Name != "" {
		pod.SetString(class.Name, "spec", "priorityClassName")
	}
	pod.SetInt(int64(class.Value), "spec", "priority")
	if class.PreemptionPolicy != nil {
		pod.SetString(string(*class.PreemptionPolicy), "spec", "preemptionPolicy")
	}
	return nil
}

// byDefault returns the default class, nil if there is none. If there are several, which is
// only possible by a race, it returns the one with the lowest value.
func (p *plugin) byDefault() (lowest *schedulingv1.PriorityClass, err error) {
	classes, err := p.classes.List("")
	for _, class := range classes {
		if class.GlobalDefault && (lowest == nil || class.Value < lowest.Value) {
			lowest = class
		}
	}
	return lowest, err
}

// validate denies a second default class.
func (p *plugin) validate(_ context.Context, review *codec.Review) admission.Result {
	if review.Resource().Resource != "priorityclasses" || !review.Object.Get("globalDefault").Bool() {
		return admission.Allowed()
	}
	now, err := p.byDefault()
	if err != nil {
		return admission.Errored(err)
	}
	if now == nil || review.Operation() == codec.Update && review.Object.Get("metadata", "name").EqualString(now.Name) {
		return admission.Allowed()
	}
	return admission.Denied(admission.Forbidden(review,
		fmt.Errorf("PriorityClass %v is already marked as default. Only one default can exist", now.Name)))
}
