// Package kit has what the commands of salvor and of salvor-lab share: the API's address and credentials, the output of records, progress,
// a terminal's questions, exit statuses, and manual pages. The package knows no command.
package kit
