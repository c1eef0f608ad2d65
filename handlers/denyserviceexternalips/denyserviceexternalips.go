// Package denyserviceexternalips is the admission plugin
// DenyServiceExternalIPs.
//
// It keeps Services from claiming external IPs they did not have before.
// Whoever may create a Service can otherwise take over the traffic of any
// address by naming it in spec.externalIPs (CVE-2020-8554); in a cluster whose
// users are not all trusted one wants it on.
//
// Behaviour: k8s.io/kubernetes
// plugin/pkg/admission/network/denyserviceexternalips.
package denyserviceexternalips

import (
	"context"
	"errors"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

// Plugin returns the plugin, for the table of package plugins.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:      "DenyServiceExternalIPs",
		Summary:   "denies Services that start to use an external IP",
		Rules:     []admission.Rule{admission.CreateUpdate("services")},
		Validates: true,
		New: func(admission.Setup) (admission.Handler, error) {
			return admission.Handler{Validate: validate}, nil
		},
	}
}

func validate(_ context.Context, review *codec.Review) admission.Result {
	if isSubset(review.Object.Get("spec", "externalIPs"), review.OldObject.Get("spec", "externalIPs")) {
		return admission.Allowed()
	}
	err := errors.New("Use of external IPs is denied by admission control")
	return admission.Denied(admission.Forbidden(review, err))
}

// isSubset reports whether every one of ips was there before. Addresses are
// compared as they are written.
func isSubset(ips, before codec.Value) bool {
	// An update nearly always leaves the addresses as they were, and the API
	// server writes both objects alike.
	if ips.JSON() == before.JSON() {
		return true
	}
	known := make(map[string]bool)
	for _, ip := range before.Elements() {
		known[ip.String()] = true
	}
	for _, ip := range ips.Elements() {
		if !known[ip.String()] {
			return false
		}
	}
	return true
}
