// Package denyescalatingexec is the admission plugin DenyEscalatingExec.
//
// It keeps users from running commands in pods that are privileged or use
// namespaces of their node: whoever may do that is root on the node. One wants
// it where people may use exec in pods that others made.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/exec v1.20.15, the last
// release that had it.
package denyescalatingexec

import (
	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/handlers/internal/denyexec"
)

// Plugin returns the plugin, for the table of package plugins.
func Plugin() admission.Plugin {
	return denyexec.Plugin("DenyEscalatingExec",
		"denies exec and attach to pods that are privileged or share namespaces with their node", true)
}
