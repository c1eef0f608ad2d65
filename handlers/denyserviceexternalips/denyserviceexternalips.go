// Package denyserviceexternalips is the admission plugin
// DenyServiceExternalIPs.
//
// It denies new external IPs of Services. Without it, users who may create Services can take
// over the traffic of any address by naming it in spec.externalIPs (CVE-2020-8554). Enable
// it if not all users of the cluster are trusted.
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

// Plugin returns the plugin, for the table of package handlers.
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

// isSubset reports whether every one of ips was there before. Addresses are compared as
// text.
func isSubset(ips, before codec.Value) bool {
	// Updates nearly always leave the addresses unchanged, and the API server encodes both
	// objects in the same way.
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
