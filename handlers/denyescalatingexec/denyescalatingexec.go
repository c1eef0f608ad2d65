// Package denyescalatingexec is the admission plugin DenyEscalatingExec.
//
// It denies running commands in pods that are privileged or use namespaces of their node,
// because this gives root access to the node. Enable it if users may use exec in pods of
// other users.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/exec v1.20.15, the last
// release that had it.
package denyescalatingexec

import (
	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/handlers/internal/denyexec"
)

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	return denyexec.Plugin("DenyEscalatingExec",
		"denies exec and attach to pods that are privileged or share namespaces with their node", true)
}
