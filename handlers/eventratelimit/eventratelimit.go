// Package eventratelimit is the admission plugin EventRateLimit.
//
// It limits the number of Events per second: in the cluster, of a namespace, of a user, or
// of one source about one object. A controller in a loop, or a crash loop in a thousand
// pods, writes Events faster than etcd can store them; without limits this slows down all
// other clients.
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

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:      "EventRateLimit",
		Summary:   "limits how many Events are written each second, in all, by namespace, by user, or by source and object",
		Rules:     []admission.Rule{admission.CreateUpdate("events")},
		Validates: true,
		// A request takes tokens; a dry run does not.
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
	// A dry run writes no Event.
	if !isCoreEvent(review) || review.DryRun() {
		return admission.Allowed()
	}
	var denials []error
	// Every limit takes a token, even if an earlier one has denied.
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

// isCoreEvent reports whether the user wrote an Event of the core group. To the in-tree
// plugin, an Event of events.k8s.io is another kind, which it does not limit. kube-apiserver
// may convert such an Event for a webhook; only the kind of the original request tells. A
// review without that kind was not converted.
func isCoreEvent(review *codec.Review) bool {
	kind := review.RequestKind()
	if kind == (codec.GroupVersionKind{}) {
		kind = review.Kind()
	}
	return kind.Group == "" && kind.Kind == "Event"
}
