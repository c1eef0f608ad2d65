// Package denyexeconprivileged is the admission plugin DenyExecOnPrivileged.
//
// It denies running commands in pods with a privileged container. DenyEscalatingExec does
// the same and more; Kubernetes had both for compatibility.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/exec v1.20.15, the last
// release that had it.
package denyexeconprivileged

import (
	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/handlers/internal/denyexec"
)

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	return denyexec.Plugin("DenyExecOnPrivileged", "denies exec and attach to pods with a privileged container", false)
}
