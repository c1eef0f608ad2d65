// Package jobvalidation is the admission plugin JobValidation.
//
// It denies changes of the parallelism of a Job whose pods are scheduled as a gang. The group
// fixes how many pods must start together, and does not change with the Job.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/job.
package jobvalidation

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/schedulingv1alpha2"
)

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:         "JobValidation",
		Summary:      "denies changes of the parallelism of Jobs whose pods are scheduled as a gang",
		Rules:        []admission.Rule{admission.NewRule("batch", "v1", "jobs", codec.Update)},
		Validates:    true,
		OnByDefault:  true,
		FirstRelease: "1.36",
		LastRelease:  "1.36",
		Needs:        []cluster.Need{cluster.PodGroups.Watched()},
		New: func(setup admission.Setup) (admission.Handler, error) {
			p := &plugin{groups: cluster.PodGroups.In(setup.Cluster)}
			return admission.Handler{Validate: p.validate}, nil
		},
	}
}

// lookEvery is the number of groups after which the plugin checks the context.
const lookEvery = 1024

type plugin struct {
	groups *cluster.Objects[*schedulingv1alpha2.PodGroup]
}

// validate reads the group of the stored Job. As in-tree, it allows the change if the group
// is not known.
func (p *plugin) validate(ctx context.Context, review *codec.Review) admission.Result {
	job, old := &review.Object, &review.OldObject
	if !job.Root().IsSet() || !old.Root().IsSet() || sameParallelism(job, old) {
		return admission.Allowed()
	}
	namespace := old.Get("metadata", "namespace").String()
	if name := old.Get("spec", "template", "spec", "schedulingGroup", "podGroupName"); name.IsSet() {
		group, ok := p.groups.Cached(namespace, name.String())
		if ok && isGang(group) {
			return deny(review, group)
		}
		if err := p.groups.LeftOut(namespace, name.String()); err != nil {
			return admission.Errored(err)
		}
		return admission.Allowed()
	}
	uid := old.Get("metadata", "uid").String()
	groups, err := p.groups.List(namespace)
	if err != nil {
		return admission.Errored(err)
	}
	for i, group := range groups {
		if i%lookEvery == lookEvery-1 && ctx.Err() != nil {
			return admission.Errored(ctx.Err())
		}
		if owner := metav1.GetControllerOfNoCopy(group); owner != nil && string(owner.UID) == uid && isGang(group) {
			return deny(review, group)
		}
	}
	return admission.Allowed()
}

// sameParallelism compares the parallelisms of two Jobs, which may be unset.
func sameParallelism(a, b *codec.Object) bool {
	given, was := a.Get("spec", "parallelism"), b.Get("spec", "parallelism")
	return given.IsSet() == was.IsSet() && (!given.IsSet() || given.Scalar() == was.Scalar())
}

func isGang(group *schedulingv1alpha2.PodGroup) bool { return group.Spec.SchedulingPolicy.Gang != nil }

func deny(review *codec.Review, group *schedulingv1alpha2.PodGroup) admission.Result {
	return admission.Denied(admission.Forbidden(review,
		fmt.Errorf("cannot change parallelism for a Job referencing gang-scheduled PodGroup %q", group.Name)))
}
