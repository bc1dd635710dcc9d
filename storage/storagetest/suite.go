// Package storagetest is the contract suite of storages.
package storagetest
