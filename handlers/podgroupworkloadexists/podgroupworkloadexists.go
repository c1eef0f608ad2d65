// Package podgroupworkloadexists is the admission plugin PodGroupWorkloadExists.
//
// It denies a PodGroup that refers to a template of a Workload, if the Workload does not
// exist, is being deleted, or has no such template. Without it, such a group would wait
// forever.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/podgroup.
package podgroupworkloadexists

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/schedulingv1alpha2"
)

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:         "PodGroupWorkloadExists",
		Summary:      "denies PodGroups of Workloads, or of templates in them, that do not exist",
		Rules:        []admission.Rule{admission.NewRule("scheduling.k8s.io", "v1alpha2", "podgroups", codec.Create)},
		Validates:    true,
		OnByDefault:  true,
		FirstRelease: "1.36",
		LastRelease:  "1.36",
		Needs:        []cluster.Need{cluster.Workloads.Watched()},
		New: func(setup admission.Setup) (admission.Handler, error) {
			p := &plugin{workloads: cluster.Workloads.In(setup.Cluster)}
			return admission.Handler{Validate: p.validate}, nil
		},
	}
}

type plugin struct {
	workloads *cluster.Objects[*schedulingv1alpha2.Workload]
}

// validate asks the API server for a Workload that is not in the cache, because it may be
// new.
func (p *plugin) validate(ctx context.Context, review *codec.Review) admission.Result {
	of := review.Object.Get("spec", "podGroupTemplateRef", "workload")
	if !of.IsSet() {
		return admission.Allowed()
	}
	name, template := of.Get("workloadName").String(), of.Get("podGroupTemplateName").String()
	workload, err := p.workloads.Get(ctx, review.Namespace(), name)
	if err != nil { // IsNotFound would allocate without an error
		return failed(review, name, err)
	}
	if workload.DeletionTimestamp != nil {
		return deny(review, "PodGroup rejected: Workload %q is being deleted", name)
	}
	for i := range workload.Spec.PodGroupTemplates {
		if workload.Spec.PodGroupTemplates[i].Name == template {
			return admission.Allowed()
		}
	}
	return deny(review, "PodGroup rejected: PodGroupTemplate %q not found in Workload %q", template, name)
}

// failed returns the result for a PodGroup whose Workload could not be read.
func failed(review *codec.Review, name string, err error) admission.Result {
	switch {
	case apierrors.IsNotFound(err):
		return deny(review, "PodGroup rejected: Workload %q not found", name)
	case cluster.IsInvalidName(err):
		return admission.Denied(apierrors.NewInternalError(err))
	}
	return admission.Errored(err)
}

func deny(review *codec.Review, format string, arguments ...any) admission.Result {
	return admission.Denied(admission.Forbidden(review, fmt.Errorf(format, arguments...)))
}
