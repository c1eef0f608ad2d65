// Package eventratelimit is the admission plugin EventRateLimit.
//
// It limits how many Events the cluster takes in each second: in all, from a
// namespace, from a user, or from one source about one object. A controller
// that repeats itself, or a crash loop in a thousand pods, writes Events
// faster than etcd can take them; without limits it slows down everybody else.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/eventratelimit.
package eventratelimit

import (
	"context"
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

// Plugin returns the plugin, for the table of package plugins.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:      "EventRateLimit",
		Summary:   "limits how many Events are written each second, in all, by namespace, by user, or by source and object",
		Rules:     []admission.Rule{admission.CreateUpdate("events")},
		Validates: true,
		// A call takes from what the limits allow; that of a dry run does not.
		SideEffects:    admissionregistrationv1.SideEffectClassNoneOnDryRun,
		RequiresConfig: true,
		New: func(setup admission.Setup) (admission.Handler, error) {
			return newHandler(setup.Config, time.Now)
		},
	}
}

// plugin has one enforcer for each limit, in the order of the configuration.
type plugin []*enforcer

func newHandler(config []byte, now func() time.Time) (admission.Handler, error) {
	c, err := loadConfiguration(config)
	if err != nil {
		return admission.Handler{}, err
	}
	p := make(plugin, len(c.Limits))
	for i, l := range c.Limits {
		if p[i], err = newEnforcer(l, now); err != nil {
			return admission.Handler{}, err
		}
	}
	return admission.Handler{Validate: p.validate}, nil
}

func (p plugin) validate(_ context.Context, review *codec.Review) admission.Result {
	// What a dry run asks for is never written.
	if !isCoreEvent(review) || review.DryRun() {
		return admission.Allowed()
	}
	var denials []error
	// Every limit is charged, also when one before it has denied.
	for _, e := range p {
		if k := keyOf(e.limit.Type, review); !e.accepts(k) {
			denials = append(denials, fmt.Errorf("limit reached on type %s for key %s", e.limit.Type, k))
		}
	}
	if len(denials) > 0 {
		return admission.Denied(apierrors.NewTooManyRequestsError(utilerrors.NewAggregate(denials).Error()))
	}
	return admission.Allowed()
}

// isCoreEvent reports whether the user wrote an Event of the core group. One
// of events.k8s.io is another kind to the in-tree plugin, which does not limit
// it; to a webhook kube-apiserver may send it converted, and only the kind of
// the original request tells. A review without that kind was not converted.
func isCoreEvent(review *codec.Review) bool {
	kind := review.RequestKind()
	if kind == (codec.GroupVersionKind{}) {
		kind = review.Kind()
	}
	return kind.Group == "" && kind.Kind == "Event"
}
